"""Small real things that tests are made of: an encoder, sentences, a data folder."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distilbench.data.corpus import Corpus
    from distilbench.data.requirements import Requirements
    from distilbench.evaluation.encoders import EncoderRow
    from distilbench.evaluation.retrieval import Documents
    from distilbench.records import Rung, Score

WORDS = (
    "the a one two man woman dog cat child runs walks eats sees plays in on under park house street river "
    "red blue small big quickly slowly today yesterday not how do i what is can you pay open close door shop"
).split()


def comparable_rungs(rungs: Sequence[Rung]) -> list[tuple[Any, ...]]:
    """Everything of a training's rungs that does not depend on the clock or on memory."""
    timeless = [{k: v for k, v in r.metrics.items() if k not in ("rung_seconds", "peak_mb")} for r in rungs]
    return [(r.rung, r.step, r.objective, metrics) for r, metrics in zip(rungs, timeless, strict=True)]


def write_tsv(path: Path, header: list[str], rows: list[list[object]]) -> Path:
    """A TSV file with a header line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ["\t".join(map(str, row)) for row in [header, *rows]]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def demonstration(size: int = 60, needs: Requirements | None = None) -> Corpus:
    """The demonstration with at most `size` pairs, sentences, triplets and labelled pairs to train on."""
    from distilbench.data.about import DEMONSTRATION
    from distilbench.data.folder import Limits, folder_corpus
    from distilbench.data.requirements import NO_REQUIREMENTS

    limits = Limits(pairs=size, sentences=size)
    return folder_corpus(DEMONSTRATION, limits, needs or NO_REQUIREMENTS)


def make_encoder(folder: Path, *, width: int = 32, layers: int = 4, seed: int = 0, prompts: bool = False) -> Path:
    """A sentence-transformers folder with a randomly drawn BERT over `WORDS`; `prompts`: it has some, query and passage."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Normalize, Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling
    from transformers import BertConfig, BertModel, BertTokenizerFast

    torch.manual_seed(seed)
    raw = folder.with_name(folder.name + "-raw")
    raw.mkdir(parents=True)
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *"abcdefghijklmnopqrstuvwxyz?.,"]
    vocabulary += [f"##{c}" for c in "abcdefghijklmnopqrstuvwxyz"]
    (raw / "vocab.txt").write_text("\n".join(dict.fromkeys(vocabulary)))
    tokenizer = BertTokenizerFast(str(raw / "vocab.txt"), model_max_length=64)
    tokenizer.save_pretrained(raw)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=4,
        intermediate_size=2 * width,
        max_position_embeddings=64,
        initializer_range=0.3,
    )
    BertModel(config, add_pooling_layer=False).save_pretrained(raw)
    transformer = Transformer(str(raw))
    pooling = Pooling(width, pooling_mode="mean")
    model = SentenceTransformer(modules=[transformer, pooling, Normalize()], device="cpu")
    if prompts:
        model.prompts = {"query": "what is ", "passage": "the red ", "document": ""}
    model.save(str(folder), create_model_card=False)
    return folder


def random_sentences(count: int, seed: int) -> list[str]:
    """Distinct random word strings."""
    rng = random.Random(seed)
    found: dict[str, None] = {}
    while len(found) < count:
        found[" ".join(rng.choices(WORDS, k=rng.randint(3, 12)))] = None
    return list(found)


def make_data(folder: Path, *, pairs: int = 64, sentences: int = 80, triplets: int = 48, searched: str = "dev") -> Path:
    """A data folder in the documented layout: STS dev and test sets, duplicate questions, triplets, unlabelled text."""
    rng = random.Random(1)
    text = random_sentences(pairs * 2 + sentences + 400, seed=2)

    def sts_rows(count: int) -> list[list[object]]:
        rows: list[list[object]] = []
        for _ in range(count):
            words = text.pop().split()
            changed = rng.randint(0, len(words) - 1)
            other = words[: len(words) - changed] + rng.choices(WORDS, k=changed)
            rows.append([" ".join(words), " ".join(other), f"{5 * (1 - changed / len(words)):.2f}"])
        return rows

    header = ["sentence1", "sentence2", "score"]
    write_tsv(folder / "sts" / "STSB.dev.tsv", header, sts_rows(40))
    write_tsv(folder / "sts" / "STSB.test.tsv", header, sts_rows(40))
    write_tsv(folder / "sts" / "STS12.MSRpar.tsv", header, sts_rows(30))
    write_tsv(folder / "sts" / "STS12.OnWN.tsv", header, sts_rows(30))
    questions = [(text.pop(), text.pop()) for _ in range(pairs)]
    write_tsv(
        folder / "quora" / "pairs.tsv",
        ["question1", "question2", "is_duplicate", "split"],
        [[one, two, 1, "train"] for one, two in questions],
    )
    documents = [text.pop() for _ in range(60)]
    write_tsv(
        folder / "quora" / "corpus.tsv",
        ["doc_id", "text", "is_beir_query"],
        [[f"d{i}", t, 0] for i, t in enumerate(documents)],
    )
    write_tsv(
        folder / "quora" / "retrieval" / f"queries.{searched}.tsv",
        ["query_id", "text"],
        [[f"q{i}", f"how do i {documents[i]}"] for i in range(20)],
    )
    write_tsv(
        folder / "quora" / "retrieval" / f"qrels.{searched}.tsv",
        ["query_id", "doc_id", "score"],
        [[f"q{i}", f"d{i}", 1] for i in range(20)],
    )
    write_tsv(folder / "unlabeled" / "sentences.tsv", ["text"], [[text.pop()] for _ in range(sentences)])
    write_tsv(
        folder / "nli" / "triplets.tsv",
        ["anchor", "positive", "negative"],
        [[text.pop(), text.pop(), text.pop()] for _ in range(triplets)],
    )
    return folder


def in_memory(vectors_ND: Any) -> Documents:
    """Documents that are one array."""
    import numpy as np

    from distilbench.evaluation.retrieval import Documents

    return Documents(lambda rows: vectors_ND[rows], np.arange(len(vectors_ND)), vectors_ND.shape[1], "set (test)")


def sts_scores(embed: Any, sets: Sequence[Any]) -> list[Score]:
    """The scores of STS sets by a function from rows to vectors."""
    from distilbench.evaluation.sts import cosine, scores_of_similarities

    return scores_of_similarities(sets, [cosine(embed(s.left_P), embed(s.right_P)) for s in sets])


def scored_rows(vectors: Any, corpus: Corpus, codes: Sequence[Any] = ()) -> list[EncoderRow]:
    """The rows of vectors of all sentences of a corpus: as they are, then by each code."""

    from distilbench.evaluation.encoders import Vectors, encoder_rows
    from distilbench.trials.scoring import INDEXES

    width = vectors.shape[1]
    found = Vectors("test", width, lambda rows: vectors[rows])
    return list(encoder_rows(found, corpus, [width], lambda _: codes, INDEXES))
