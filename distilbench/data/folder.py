"""A local data folder (`--data DIR`): what is found is used, what is expected and absent is said.

sts/NAME[.SUBSET][.SPLIT].tsv            sentence1 sentence2 score          STS12-16, STSB.dev, SICK.test, ...
NAME/...                                 retrieval sets with judgements: see `retrieval_sets`
NAME/pairs.tsv, *.dup_pairs.tsv, clicks.tsv   pairs of duplicates, or of a query and a document: see `searches`
nli/triplets.tsv[.gz]                    anchor positive negative [source]
unlabeled/*                              text           TSV, CSV, JSON lines, Parquet, or a sentence a line (`readers`);
                                                        questions*, queries*: queries, passages*, documents*: passages

Triplets and labelled pair tasks are read only where a method needs them: see `pair_tasks`. `about.json`
is what the folder says of itself: see `about`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from distilbench.choices import SWEPT_TASKS, TaskKind
from distilbench.data.about import about
from distilbench.data.corpus import Corpus, CorpusBuilder
from distilbench.data.pair_tasks import add_pair_tasks, formats_of, read_pair_task
from distilbench.data.readers import column_names, either, files_of, finite_number, format_of, read_tsv, sentence
from distilbench.data.requirements import NO_REQUIREMENTS, Requirements
from distilbench.data.retrieval_sets import TRAIN, layouts, read_searches, searched_text
from distilbench.data.roles import DOCUMENT, QUERY
from distilbench.data.sampling import Labelled, draw_evenly, fixed_sample
from distilbench.data.searches import PAIRS_EXPECTED, PairFile, make_searches, read_pairs
from distilbench.data.splits import EXPECTED, is_about_a_split, split_at_end
from distilbench.data.text import TextStream, open_text
from distilbench.errors import InputError
from distilbench.selection import STS, Selection

SOURCE = "source"
"""The column of `unlabeled/` that says where a sentence comes from."""
TRIPLET = ("anchor", "positive", "negative")
TRAIN_SOURCES = ("train", "train_part")
"""Endings of the `source` of triplets to train on: the others were made of NLI dev and test files."""
STS_EXPECTED = ("STS12", "STS13", "STS14", "STS15", "STS16", "STSB.dev", "STSB.test", "SICK.test")


@dataclass(frozen=True)
class Limits:
    """Limits on how much of a large folder is used; None means all. Samples are drawn with a fixed seed.

    `pairs`: similar pairs, labelled pairs of each pair task (its dev and test sets are never cut) and triplets to train
    on, of each so many; `sentences`: unlabelled training sentences; `documents`: documents of a retrieval set, of which
    those that answer a query are always kept.
    """

    pairs: int | None = 20_000
    sentences: int | None = 20_000
    documents: int | None = 20_000


class FolderSets(NamedTuple):
    """What the sets of a folder ask about, its files of pairs, and whether retrieval sets were `made` of these."""

    asked: set[str]
    files: Sequence[PairFile]
    made: bool


def folder_corpus(
    root: Path,
    limits: Limits,
    needs: Requirements = NO_REQUIREMENTS,
    more_text: bool = False,
    select: Selection | None = STS,
) -> Corpus:
    """Read `root`; no sentence that a dev or test set asks about (STS, queries, the pair tasks of `needs`) is trained on.

    What `needs` adds comes after the sentences of a corpus without needs. With `more_text` (`training_text` reads it), or
    with judgements to train on, a folder need not have training text. Where `select` (None: what the folder has) needs a
    retrieval dev set, and pairs are there instead of one, it is made of them.
    """
    builder = builder_of(root)
    sets = add_sets(root, limits, builder, SWEPT_TASKS, select)
    add_training(root, limits, builder, sets, needs, more_text)
    corpus = builder.build()
    judged = any(TRAIN in layout.qrels for layout in layouts(root))
    _check_usable(root, corpus, own_text=more_text or judged)
    return corpus


def add_sets(
    root: Path, limits: Limits, builder: CorpusBuilder, kinds: Collection[TaskKind], select: Selection | None
) -> FolderSets:
    """Add the STS and retrieval sets of the `kinds`; with what else `root` has to train on."""
    if "sts" in kinds:
        read_sts(root / "sts", builder)
    asked = builder.scored
    if "retrieval" in kinds:
        asked |= read_searches(root, limits.documents, builder)
    files = read_pairs(root)
    made = _wants_searches(select, builder) and bool(files)
    if made:
        asked |= make_searches(files, limits.documents, builder)
    if "retrieval" in kinds and not builder.retrieval:
        builder.missing.append("a retrieval set (NAME/corpus.tsv with retrieval/, or BEIR's NAME/corpus.jsonl)")
    return FolderSets(asked, files, made)


def add_training(
    root: Path,
    limits: Limits,
    builder: CorpusBuilder,
    sets: FolderSets,
    needs: Requirements = NO_REQUIREMENTS,
    more_text: bool = False,
) -> None:
    """Add what there is to train on beside the `sets`, and what `needs` adds."""
    asked = sets.asked
    builder.found += [file.summary for file in sets.files]
    if not sets.files:
        builder.missing.append(PAIRS_EXPECTED)
    streams = _unlabelled(root / "unlabeled", builder)
    pairs = {file.path.relative_to(root).as_posix(): file.train for file in sets.files}
    training: Iterable[str] = []
    if not (streams or more_text):
        if not any(pairs.values()):
            training = searched_text(root, builder)
        elif sets.made:
            training = [text for file in sets.files for text in file.texts]
    tasks = [read_pair_task(root, name) for name in needs.distinct_tasks(formats_of(root))]
    test_texts = asked.union(*(task.evaluation for task in tasks))
    labelled = chain(
        ((text, "") for text in training),
        ((text, source or name) for name, stream in streams.items() for text, source in stream),
        ((text, name) for name, of_file in pairs.items() for pair in of_file for text in pair),
    )
    _add_training_text(builder, pairs, labelled, asked, test_texts, limits)
    for stream in streams.values():
        for role, rows in ((QUERY, builder.text_queries), (DOCUMENT, builder.text_passages)):
            if stream.role == role:
                rows |= builder.trained_rows(text for text, _ in stream)
    builder.found += [f"{name}: {stream.summary()}" for name, stream in streams.items()]
    add_pair_tasks(tasks, limits.pairs, test_texts, builder)
    if needs.triplets:
        add_triplets_of_folder(root, limits.pairs, test_texts, builder)


def builder_of(root: Path) -> CorpusBuilder:
    """An empty corpus of the folder's name."""
    if not root.is_dir():
        raise InputError(f"--data {root}: no such folder")
    said = about(root)
    return CorpusBuilder(root.resolve().name, said.demonstration, said.show, said.text)


def _wants_searches(select: Selection | None, builder: CorpusBuilder) -> bool:
    if any(s.split == "dev" for s in builder.retrieval):
        return False
    return "retrieval" in select.kinds if select else not any(s.split == "dev" for s in builder.sts)


def _check_usable(root: Path, corpus: Corpus, *, own_text: bool) -> None:
    if not corpus.sts and not corpus.retrieval and not len(corpus.train):
        expected = "no usable set in it; expected e.g. sts/STSB.dev.tsv (docs/data.md has the layout)"
        raise nothing_in(root, expected, corpus.missing)
    if not len(corpus.train) and not own_text:
        expected = "NAME/pairs.tsv, NAME/*.dup_pairs.tsv, NAME/clicks.tsv, unlabeled/*.tsv"
        raise InputError(f"--data {root}: nothing to train on; expected {expected}, or --text")


def nothing_in(root: Path, expected: str, missing: Sequence[str]) -> InputError:
    """The error of a folder without a set: it names three files that are not read, and a subfolder that looks like one."""
    not_read = [f"; {line}" for line in missing if "not read" in line][:3]
    deeper = [path.parent for name in ("sts", "sc", "glue", "unlabeled") for path in sorted(root.glob(f"*/{name}/"))]
    is_it = f"; is it --data {deeper[0]}?" if deeper else ""
    return InputError(f"--data {root}: {expected}{''.join(not_read)}{is_it}")


def read_sts(folder: Path, builder: CorpusBuilder) -> None:
    """Add the STS sets of a folder, and what of `STS_EXPECTED` is missing there."""
    if not folder.is_dir():
        builder.missing.append(f"{folder.name}/ (STS sets)")
        return
    for (group, subset, split), path in _sts_files(folder, builder).items():
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


def _sts_files(folder: Path, builder: CorpusBuilder) -> dict[tuple[str, str, str], Path]:
    """The files of a folder by group, subset and split; without a split at the end of its name a file is a test set."""
    files: dict[tuple[str, str, str], Path] = {}
    unsplit: list[tuple[str, str, Path]] = []
    for path in sorted(files_of(folder, "*.tsv")):
        name, split = split_at_end(path.name.removesuffix(".gz").removesuffix(".tsv"))
        group, _, subset = name.partition(".")
        if split is None:
            unsplit.append((group, subset, path))
        key = (group, subset, split or "test")
        if key in files:
            raise InputError(f"{path}: {files[key].name} beside it is the {key[2]} set too; expected one of them")
        files[key] = path
    split_groups = {group for group, subset, _ in files if not subset} - {g for g, subset, _ in unsplit if not subset}
    for group, subset, path in unsplit:
        if group in split_groups or is_about_a_split(f"{group}.{subset}"):
            raise InputError(f"{path}: {subset!r} is no split of {group}; {EXPECTED}")
    unread = sorted({p.name for p in folder.glob("[!.]*") if p.is_file()} - {p.name for p in files.values()})
    builder.missing += [f"{folder.name}/{name}: not read; expected NAME.tsv or NAME.tsv.gz" for name in unread]
    return files


def _unlabelled(folder: Path, builder: CorpusBuilder) -> dict[str, TextStream]:
    files = [p for p in sorted(folder.glob("*")) if format_of(p)]
    if not files:
        builder.missing.append("unlabeled/*.tsv")
    return {f"unlabeled/{path.name}": open_text(str(path), source_column=SOURCE) for path in files}


def _add_training_text(
    builder: CorpusBuilder,
    pairs: Mapping[str, Sequence[tuple[str, str]]],
    labelled: Iterable[Labelled],
    evaluation: set[str],
    test_texts: set[str],
    limits: Limits,
) -> None:
    every_pair = [pair for of_file in pairs.values() for pair in of_file]
    clean_pairs = [p for p in every_pair if p[0] != p[1] and not evaluation.intersection(p)]
    drawn_pairs = fixed_sample(clean_pairs, limits.pairs)
    rows = Counter[bool]()

    def trainable() -> Iterator[Labelled]:
        for text, source in labelled:
            rows[text in evaluation] += 1
            if text not in evaluation:
                yield text, source

    drawn, sources = draw_evenly(trainable(), limits.sentences)
    if set(sources) == {""}:  # documents, whose order in a file decides nothing
        drawn.sort()
    # Everything drawn gets its row before the pair tasks take from it: the sentences stay those of a corpus without them.
    for texts in ([p[0] for p in drawn_pairs], [p[1] for p in drawn_pairs], drawn):
        builder.rows(texts)
    used_pairs = [p for p in drawn_pairs if not test_texts.intersection(p)]
    used_sentences = [s for s in drawn if s not in test_texts]
    builder.add_pairs([p[0] for p in used_pairs], [p[1] for p in used_pairs])
    builder.train_on(used_sentences)
    dropped = len(every_pair) - len(clean_pairs) + rows[True]
    dropped += len(drawn_pairs) - len(used_pairs) + len(drawn) - len(used_sentences)
    if every_pair or rows[False] or dropped:
        builder.found.append(
            f"training on {len(used_pairs)} of {len(clean_pairs)} pairs and {len(used_sentences)} distinct of {rows[False]} "
            f"sentences; {dropped} left out (identical pairs, or text that a dev or test set asks about)"
        )
    if len(sources) > 1:
        each = ", ".join(f"{source} {len(texts)}" for source, texts in sources.items())
        builder.found.append(f"sentences of each source: {each}")
        builder.text_sources = {source: builder.rows(texts) for source, texts in sources.items()}


def triplets_file(root: Path) -> Path | None:
    """The triplets of a data folder, None where it has none."""
    return either(root / "nli", "triplets.tsv")


def add_triplets_of_folder(root: Path, limit: int | None, evaluation: set[str], builder: CorpusBuilder) -> None:
    """Train on at most `limit` triplets of `root`, none with a sentence of `evaluation`; None: on all."""
    path = triplets_file(root)
    if path is None:
        raise InputError(
            f"--data {root}: the method learns from triplets; expected nli/triplets.tsv or nli/triplets.tsv.gz"
        )
    has_source = "source" in column_names(path)
    total, train = 0, list[tuple[str, str, str]]()
    for row, (anchor, positive, negative, *source) in read_tsv(path, (*TRIPLET, *(["source"] if has_source else []))):
        total += 1
        if not has_source or source[0].endswith(TRAIN_SOURCES):
            one, two = sentence(path, row, "anchor", anchor), sentence(path, row, "positive", positive)
            train.append((one, two, sentence(path, row, "negative", negative)))
    clean = [t for t in train if len(set(t)) == 3 and not evaluation.intersection(t)]
    if not clean:
        raise InputError(
            f"{path}: none of its {total} triplets can be trained on; expected three different sentences that no dev or "
            f"test set asks about" + (f", and a source ending in {' or '.join(TRAIN_SOURCES)}" if has_source else "")
        )
    used = fixed_sample(clean, limit)
    builder.train_triplets([t[0] for t in used], [t[1] for t in used], [t[2] for t in used])
    builder.found.append(
        f"nli/{path.name}: {total} triplets, {len(train)} of training files; training on {len(used)} of {len(clean)}, "
        f"{len(train) - len(clean)} left out (equal sentences, or text that a dev or test set asks about)"
    )
