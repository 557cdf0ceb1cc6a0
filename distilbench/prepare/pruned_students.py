"""Students with other tokens than their encoder. static:corpus has only those which the training sentences use: embeddings
are most of the bytes of a small encoder, and all of a static one. static:+10k has words of these sentences beside them.

The tokenizer loses or gains tokens (`encoders.pruned_tokenizer`), and the table of embeddings their rows. What comes after
works from what was made here as from any other encoder, or any other start of a static student.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer

from distilbench.data.corpus import Corpus, Rows
from distilbench.encoders.encoder import EncoderSpec, readable_tokenizer, transformer_folder
from distilbench.encoders.pruned_tokenizer import PRUNABLE, check_kind, frequent_words, grown, pruned, token_count
from distilbench.errors import InputError
from distilbench.prepare.static_start import TOKENIZER, VECTORS, load_static_start, word_vectors
from distilbench.prepare.tokens import Tokens, load_tokens
from distilbench.storage.arrays import array_sha256, save_array
from distilbench.storage.files import write_json
from distilbench.storage.store import ArtifactStore

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

STEP_VERSION = 1
CONFIG = "tokenizer_config.json"
FILES = ("config.json", "config_sentence_transformers.json", "model.safetensors", "modules.json", TOKENIZER, CONFIG)
ONLY_ONE = ("vocab.txt", "vocab.json", "merges.txt", "spiece.model", "sentencepiece.bpe.model", "tokenizer.model")
"""Files that would say again what tokenizer.json says, of all tokens."""
LOW_PADDING = 100
"""A padding token with a smaller number keeps it: positions are counted from it in RoBERTa and MPNet."""
READ_AGAIN = 200
"""Training sentences that the pruned tokenizer has to read as the whole one did."""


def check_vocabulary(source: EncoderSpec, what: str, kinds: Sequence[str] = PRUNABLE) -> None:
    """Check that an encoder's tokenizer is of one of these kinds, before anything is made; `what` it is, for the message."""
    folder = source.folder()
    if folder is None:
        content = source.skeleton().tokenizer.backend_tokenizer.to_str()
    elif (file := transformer_folder(folder) / TOKENIZER).exists():
        content = file.read_text()
    else:
        raise InputError(f"{what} {source.name!r} has no tokenizer.json; expected a fast tokenizer")
    check_kind(json.loads(content), f"{what} {source.name!r}", kinds)


def training_rows(corpus: Corpus) -> Rows:
    """All rows that some method may train on, rising."""
    tasks = [split for task in corpus.pair_tasks for name, split in task.splits.items() if name == "train"]
    parts = [corpus.train, corpus.pairs_P2, corpus.triplets_T3, corpus.judged_P2, corpus.copies.rows]
    parts += [side for split in tasks for side in (split.left_P, split.right_P)]
    return np.unique(np.concatenate([part.reshape(-1) for part in parts]))


def pruned_static(static: Path, tokens: Path, corpus: Corpus, prompts: Sequence[str], store: ArtifactStore) -> Path:
    """What a static student starts from, with the tokens of the training sentences and the `prompts` alone.

    `static` is the artifact of all of its tokens, `tokens` that of the sentences by them.
    """
    rows, start = training_rows(corpus), load_static_start(static)
    whole = json.loads(start.tokenizer.read_text())

    def make(folder: Path, missing: list[str]) -> None:
        reader = Tokenizer.from_file(str(start.tokenizer))
        own = [i for text in prompts for i in reader.encode(text, add_special_tokens=False).ids]
        found = pruned(whole, {*_used(load_tokens(tokens), rows), *own}, ":corpus")
        save_array(folder / VECTORS, np.array(start.vectors_VD[found.kept_V]))
        write_json(folder / TOKENIZER, found.tokenizer)

    parts = {"static": static.name, "tokens": tokens.name, "train": array_sha256(rows), "prompts": list(prompts)}
    return store.build("static-pruned", {**parts, "step_version": STEP_VERSION}, [VECTORS, TOKENIZER], make)


def grown_static(
    source: EncoderSpec, static: Path, tokens: Path, corpus: Corpus, thousands: int, store: ArtifactStore
) -> Path:
    """What a static student starts from, with so many frequent words of the training sentences beside its tokens.

    A word starts from the teacher's vector of it (`source`). `static` and `tokens` are as for `pruned_static`.
    """
    rows, start = training_rows(corpus), load_static_start(static)

    def make(folder: Path, missing: list[str]) -> None:
        whole = json.loads(start.tokenizer.read_text())
        words = frequent_words(whole, load_tokens(tokens).flat(rows)[0], 1000 * thousands)
        parts = [start.vectors_VD[: token_count(whole)]]
        parts += [word_vectors(source, list(words.values()), folder, "Words")] if words else []
        save_array(folder / VECTORS, np.concatenate(parts))
        write_json(folder / TOKENIZER, grown(whole, words))

    parts = {"static": static.name, "tokens": tokens.name, "train": array_sha256(rows), "thousands": thousands}
    return store.build("static-grown", {**parts, "step_version": STEP_VERSION}, [VECTORS, TOKENIZER], make)


def pruned_encoder(
    source: EncoderSpec, tokens: Path, corpus: Corpus, prompts: Sequence[str], store: ArtifactStore
) -> Path:
    """The folder of an encoder's transformer with the tokens of the training sentences and the `prompts` alone.

    `tokens` is the artifact of the sentences by all of its tokens. The transformer has no pooling: a student has its own.
    """
    rows, inner = training_rows(corpus), f"{source.title}-pruned"

    def make(folder: Path, missing: list[str]) -> None:
        model = source.load()
        own = [i for text in prompts for i in model.tokenizer(text)["input_ids"]]
        _save_pruned(model, {*_used(load_tokens(tokens), rows), *own}, folder / inner)
        some = rows[np.linspace(0, len(rows) - 1, min(READ_AGAIN, len(rows))).astype(np.int64)]
        _check_reading(folder / inner, model, [corpus.sentences[int(row)] for row in some])

    parts = {"encoder": source.identity(), "tokens": tokens.name, "train": array_sha256(rows), "prompts": list(prompts)}
    names = [f"{inner}/{name}" for name in FILES]
    return store.build("encoder-pruned", {**parts, "step_version": STEP_VERSION}, names, make) / inner


def _used(tokens: Tokens, rows: Rows) -> set[int]:
    return set(np.unique(tokens.flat(rows)[0]).tolist())


def _save_pruned(model: SentenceTransformer, used: set[int], folder: Path) -> None:
    from sentence_transformers import SentenceTransformer

    transformer: Any = model[0].model
    pad = getattr(transformer.config, "pad_token_id", None)
    needed = set() if pad is None else {pad, *(range(pad) if pad < LOW_PADDING else ())}
    whole = json.loads(model.tokenizer.backend_tokenizer.to_str())
    found = pruned(whole, used | needed | set(model.tokenizer.all_special_ids), ":corpus")
    _cut_embeddings(transformer, found.kept_V)
    alone = SentenceTransformer(modules=[model[0]], prompts=model.prompts, device="cpu")
    folder.mkdir(parents=True, exist_ok=True)
    alone.save(str(folder), create_model_card=False)
    for name in ONLY_ONE:
        (folder / name).unlink(missing_ok=True)
    write_json(folder / TOKENIZER, found.tokenizer)
    config = json.loads((folder / CONFIG).read_text())
    if "added_tokens_decoder" in config:
        number = {str(old): str(new) for new, old in enumerate(found.kept_V.tolist())}
        decoder = config["added_tokens_decoder"].items()
        config["added_tokens_decoder"] = {number[old]: token for old, token in decoder if old in number}
        write_json(folder / CONFIG, config)


def _cut_embeddings(transformer: Any, kept_V: NDArray[np.int64]) -> None:
    table = transformer.get_input_embeddings()
    with torch.no_grad():
        table.weight = torch.nn.Parameter(table.weight[torch.from_numpy(kept_V)].clone())
    number = {old: place for place, old in enumerate(kept_V.tolist())}
    table.num_embeddings = len(kept_V)
    if table.padding_idx is not None:
        table.padding_idx = number.get(table.padding_idx)
    for config in {id(c): c for c in (transformer.config, transformer.config.get_text_config())}.values():
        config.vocab_size = len(kept_V)
        for name in [name for name in config.to_dict() if name.endswith("_token_id")]:
            value = getattr(config, name, None)
            if isinstance(value, int):
                setattr(config, name, number.get(value))


def _check_reading(folder: Path, whole: SentenceTransformer, sentences: Sequence[str]) -> None:
    new, old = readable_tokenizer(str(folder), f":corpus: {folder.name}"), whole.tokenizer
    for sentence in sentences:
        if new.tokenize(sentence) != old.tokenize(sentence):
            raise InputError(f":corpus: {folder.name}: it would read {sentence[:80]!r} in another way")
