"""A local data folder (`--data DIR`): what is found is used, what is expected and absent is said.

sts/NAME[.SUBSET][.SPLIT].tsv            sentence1 sentence2 score          STS12-16, STSB.dev, SICK.test, ...
quora/pairs.tsv[.gz]                     question1 question2 is_duplicate split
quora/corpus.tsv[.gz]                    doc_id text is_beir_query
quora/retrieval/{queries,qrels}.SPLIT.tsv   query_id text; query_id doc_id score
cqadupstack/*.dup_pairs.tsv              is_duplicate title1 title2
unlabeled/*                              text           TSV, CSV, JSON lines, Parquet, or a sentence a line (`columns`)

SentEval's folder, which has another layout, is known by its `downstream/`: see `senteval`. Triplets and labelled
pair tasks are read only where a method needs them: see `triplets` and `pair_tasks`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from distilbench.choices import SWEPT_TASKS, TaskKind
from distilbench.data.columns import format_of
from distilbench.data.corpus import Corpus, CorpusBuilder
from distilbench.data.needs import NO_NEEDS, Needs
from distilbench.data.pair_tasks import FORMATS, SPLITS, add_pair_tasks, read_pair_task
from distilbench.data.senteval import (
    TRAINING_EXPECTED,
    is_senteval,
    read_senteval_sts,
    read_senteval_task,
    senteval_training,
)
from distilbench.data.tables import either, fixed_sample
from distilbench.data.text import NO_TEXTS, Texts, TextStream, open_text
from distilbench.data.triplets import add_triplets_of_folder
from distilbench.data.tsv import finite_number, flag, read_tsv, sentence
from distilbench.data.unlabelled import draw
from distilbench.errors import InputError

SOURCE = "source"
"""The column of `unlabeled/` that says where a sentence comes from."""
STS_EXPECTED = ("STS12", "STS13", "STS14", "STS15", "STS16", "STSB.dev", "STSB.test", "SICK.test")


@dataclass(frozen=True)
class Limits:
    """How much of a large folder to use; None means all. Samples are drawn with a fixed seed.

    `pairs`: similar pairs to train on; `sentences`: unlabelled training sentences; `documents`: documents of a
    retrieval set, of which those that answer a query are always kept; `triplets`: triplets to train on; `labelled`:
    training pairs of each pair task, whose dev and test sets are never cut. `evenly`: the sentences are drawn evenly from
    the sources that the column `source` of `unlabeled/` names.
    """

    pairs: int | None = 20_000
    sentences: int | None = 20_000
    documents: int | None = 20_000
    triplets: int | None = 20_000
    labelled: int | None = 20_000
    evenly: bool = False


def folder_corpus(root: Path, limits: Limits, needs: Needs = NO_NEEDS, texts: Texts = NO_TEXTS) -> Corpus:
    """Read `root`; evaluation sentences are kept out of the training ones.

    The settings of `texts` are for `unlabeled/`; its sources are read elsewhere (`training_text`): with them a folder need
    not have training text.

    These are the sentences of STS dev and test sets, retrieval queries, and the sentences of dev and test sets of the
    pair tasks in `needs`. What `needs` adds comes after the sentences of a corpus without needs.

    Raises:
        InputError: the folder is not there, holds nothing usable, lacks training text or something in `needs`, or a file
            in it is malformed (file, row and value are named).
    """
    corpus = read_folder(root, limits, needs, texts)
    _check_usable(root, corpus, own_text=bool(texts.sources))
    return corpus


def read_folder(
    root: Path,
    limits: Limits,
    needs: Needs = NO_NEEDS,
    texts: Texts = NO_TEXTS,
    kinds: Collection[TaskKind] = SWEPT_TASKS,
) -> Corpus:
    """Read `root` as `folder_corpus` does, whether or not there is enough in it for a run; of its sets the `kinds` alone.

    Raises:
        InputError: the folder is not there, lacks something in `needs`, or a file in it is malformed.
    """
    if not root.is_dir():
        raise InputError(f"--data {root}: no such folder")
    task_names = needs.distinct_tasks(FORMATS)
    builder = CorpusBuilder(name=root.resolve().name)
    streams: dict[str, TextStream] = {}
    training: list[str] = []
    pairs: dict[str, list[tuple[str, str]]] = {}
    if is_senteval(root):
        if "sts" in kinds:
            read_senteval_sts(root, builder)
        evaluation = set(builder.sentences)
        training = [] if texts.sources else senteval_training(root, builder)
        tasks = [read_senteval_task(root, name) for name in task_names]
    else:
        if "sts" in kinds:
            read_sts(root / "sts", builder)
        evaluation = set(builder.sentences)
        for split in ("dev", "test") if "retrieval" in kinds else ():
            evaluation |= _read_quora_retrieval(root / "quora", split, limits, builder)
        pairs = _quora_pairs(root / "quora", builder) | _duplicate_titles(root / "cqadupstack", builder)
        streams = _unlabelled(root / "unlabeled", texts, builder)
        tasks = [read_pair_task(root, name) for name in task_names]
    test_texts = evaluation.union(*(task.evaluation for task in tasks))
    _add_training(builder, pairs, training, streams, evaluation, test_texts, limits)
    builder.found += [f"{name}: {stream.summary()}" for name, stream in streams.items()]
    add_pair_tasks(tasks, limits.labelled, test_texts, builder)
    if needs.triplets:
        add_triplets_of_folder(root, limits.triplets, test_texts, builder)
    return builder.build()


def _check_usable(root: Path, corpus: Corpus, *, own_text: bool) -> None:
    if not corpus.sts and not corpus.retrieval and not len(corpus.train):
        raise InputError(
            f"--data {root}: no usable set in it; expected e.g. sts/STSB.dev.tsv (docs/data.md has the layout)"
        )
    if not len(corpus.train) and not own_text:
        expected_files = "quora/pairs.tsv, cqadupstack/*.dup_pairs.tsv, unlabeled/*.tsv"
        expected = TRAINING_EXPECTED if is_senteval(root) else expected_files
        raise InputError(f"--data {root}: nothing to train on; expected {expected}, or --text")


def read_sts(folder: Path, builder: CorpusBuilder) -> None:
    """Add the STS sets of a folder, and what of `STS_EXPECTED` is missing there.

    Raises:
        InputError: a file is malformed (file, row and value are named), or has fewer than two distinct scores.
    """
    for path in sorted(folder.glob("*.tsv")):
        group, *rest = path.name.removesuffix(".tsv").split(".")
        split = rest.pop() if rest and rest[-1] in SPLITS else "test"
        subset = ".".join(rest)
        if split == "train":
            continue
        left, right, score = [], [], []
        for row, (one, two, value) in read_tsv(path, ("sentence1", "sentence2", "score")):
            left.append(sentence(path, row, "sentence1", one))
            right.append(sentence(path, row, "sentence2", two))
            score.append(finite_number(path, row, "score", value))
        if len(set(score)) < 2:
            raise InputError(
                f"{path}: {len(score)} pairs with {len(set(score))} distinct scores; expected at least 2 of each"
            )
        builder.add_sts(group, subset, split, left, right, score)
        builder.found.append(f"{folder.name}/{path.name}: {len(score)} pairs ({split})")
    present = {s.group for s in builder.sts if s.split == "test"} | {f"{s.group}.{s.split}" for s in builder.sts}
    builder.missing += [f"{folder.name}/{name}" for name in STS_EXPECTED if name not in present]


def _read_quora_retrieval(folder: Path, split: str, limits: Limits, builder: CorpusBuilder) -> set[str]:
    queries_file = either(folder / "retrieval", f"queries.{split}.tsv")
    qrels_file = either(folder / "retrieval", f"qrels.{split}.tsv")
    corpus_file = either(folder, "corpus.tsv")
    if not (queries_file and qrels_file and corpus_file):
        builder.missing.append(f"quora retrieval, {split} (corpus, queries and qrels)")
        return set()
    text_of: dict[str, str] = {}
    seen_keys: set[tuple[str, ...]] = set()
    for row, (doc, text, is_query) in read_tsv(corpus_file, ("doc_id", "text", "is_beir_query")):
        _only_once(corpus_file, row, f"doc_id {doc!r}", (doc,), seen_keys)
        if not flag(corpus_file, row, "is_beir_query", is_query):
            text_of[doc] = sentence(corpus_file, row, "text", text)
    relevant: dict[str, dict[str, float]] = {}
    for row, (query, doc, score) in read_tsv(qrels_file, ("query_id", "doc_id", "score")):
        grade = finite_number(qrels_file, row, "score", score)
        _only_once(qrels_file, row, f"query_id {query!r} with doc_id {doc!r}", (query, doc), seen_keys)
        if grade > 0:
            if doc not in text_of:
                raise InputError(f"{qrels_file}, row {row}: doc_id {doc!r} is not in {corpus_file.name}")
            relevant.setdefault(query, {})[doc] = grade
    queries = {
        query: sentence(queries_file, row, "text", text)
        for row, (query, text) in read_tsv(queries_file, ("query_id", "text"))
        if query in relevant
    }
    if not queries:
        raise InputError(f"{queries_file}: none of its queries has a relevant document in {qrels_file.name}")
    needed = dict.fromkeys(doc for query in queries for doc in relevant[query])
    documents = [*needed, *fixed_sample([d for d in text_of if d not in needed], _left(limits.documents, len(needed)))]
    position = {doc: i for i, doc in enumerate(documents)}
    graded = any(grade != 1 for query in queries for grade in relevant[query].values())
    builder.add_retrieval(
        "quora",
        split,
        list(queries.values()),
        [text_of[d] for d in documents],
        [[position[d] for d in relevant[query]] for query in queries],
        [list(relevant[query].values()) for query in queries] if graded else None,
    )
    builder.found.append(
        f"quora retrieval, {split}: {len(queries)} queries, {len(documents)} of {len(text_of)} documents"
    )
    return set(queries.values())


def _only_once(path: Path, row: int, what: str, key: tuple[str, ...], seen_keys: set[tuple[str, ...]]) -> None:
    if key in seen_keys:
        raise InputError(f"{path}, row {row}: {what} is there already; expected it once")
    seen_keys.add(key)


def _quora_pairs(folder: Path, builder: CorpusBuilder) -> dict[str, list[tuple[str, str]]]:
    path = either(folder, "pairs.tsv")
    if path is None:
        builder.missing.append("quora/pairs.tsv")
        return {}
    pairs = []
    for row, (one, two, duplicate, split) in read_tsv(path, ("question1", "question2", "is_duplicate", "split")):
        if flag(path, row, "is_duplicate", duplicate) and split == "train":
            pairs.append((sentence(path, row, "question1", one), sentence(path, row, "question2", two)))
    builder.found.append(f"quora/{path.name}: {len(pairs)} duplicate pairs (train)")
    return {f"quora/{path.name}": pairs}


def _duplicate_titles(folder: Path, builder: CorpusBuilder) -> dict[str, list[tuple[str, str]]]:
    pairs: dict[str, list[tuple[str, str]]] = {}
    for path in sorted(folder.glob("*.dup_pairs.tsv")):
        name = f"cqadupstack/{path.name}"
        pairs[name] = [
            (sentence(path, row, "title1", one), sentence(path, row, "title2", two))
            for row, (duplicate, one, two) in read_tsv(path, ("is_duplicate", "title1", "title2"))
            if flag(path, row, "is_duplicate", duplicate)
        ]
        builder.found.append(f"{name}: {len(pairs[name])} duplicate pairs (train)")
    if not pairs:
        builder.missing.append("cqadupstack/*.dup_pairs.tsv")
    return pairs


def _unlabelled(folder: Path, texts: Texts, builder: CorpusBuilder) -> dict[str, TextStream]:
    files = [p for p in sorted(folder.glob("*")) if format_of(p)]
    if not files:
        builder.missing.append("unlabeled/*.tsv")
    settings = replace(texts.settings, column="text")
    return {f"unlabeled/{path.name}": open_text(str(path), settings, SOURCE) for path in files}


def _add_training(
    builder: CorpusBuilder,
    pairs: Mapping[str, Sequence[tuple[str, str]]],
    sentences: Sequence[str],
    streams: Mapping[str, TextStream],
    evaluation: set[str],
    test_texts: set[str],
    limits: Limits,
) -> None:
    every_pair = [pair for of_file in pairs.values() for pair in of_file]
    clean_pairs = [p for p in every_pair if p[0] != p[1] and not evaluation.intersection(p)]
    drawn_pairs = fixed_sample(clean_pairs, limits.pairs)
    labelled = [((text, "") for text in sentences), *(stream.labelled(name) for name, stream in streams.items())]
    if limits.evenly:
        labelled += [((text, name) for pair in of_file for text in pair) for name, of_file in pairs.items()]
    drawn = draw(labelled, evaluation, limits.sentences, evenly=limits.evenly)
    # Everything drawn gets its row before the pair tasks take from it: the sentences stay those of a corpus without them.
    for texts in ([p[0] for p in drawn_pairs], [p[1] for p in drawn_pairs], drawn.sentences):
        builder.rows(texts)
    used_pairs = [p for p in drawn_pairs if not test_texts.intersection(p)]
    used_sentences = [s for s in drawn.sentences if s not in test_texts]
    builder.train_pairs([p[0] for p in used_pairs], [p[1] for p in used_pairs], as_sentences=not limits.evenly)
    builder.train_on(used_sentences)
    dropped = len(every_pair) - len(clean_pairs) + drawn.dropped
    dropped += len(drawn_pairs) - len(used_pairs) + len(drawn.sentences) - len(used_sentences)
    builder.found.append(
        f"training on {len(used_pairs)} of {len(clean_pairs)} pairs and {len(used_sentences)} distinct of {drawn.clean} "
        f"sentences; {dropped} left out (identical pairs, or text that a dev or test set asks about)"
    )
    if len(drawn.sources) > 1:
        each = ", ".join(f"{source} {count}" for source, count in drawn.sources.items())
        builder.found.append(f"sentences of each source: {each}")


def _left(limit: int | None, used: int) -> int | None:
    return None if limit is None else max(0, limit - used)
