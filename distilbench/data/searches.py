"""Pairs of a data folder, to train on; where it has no judgements (`retrieval_sets`), retrieval sets are made of them.

Pairs of duplicates (NAME/pairs.tsv, NAME/*.dup_pairs.tsv) or of a query and a document that
was chosen for it (NAME/clicks.tsv) become a set: some questions are held out, and each has to find its duplicates among the
texts of all pairs. Questions that are duplicates of each other are held out together: no held-out pair is trained on.

NAME/pairs.tsv[.gz]          question1 question2 is_duplicate [split]
NAME/*.dup_pairs.tsv[.gz]    is_duplicate title1 title2
NAME/clicks.tsv[.gz]         query document
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from distilbench.data.corpus import CorpusBuilder, Split
from distilbench.data.readers import column_names, files_of, flag, read_tsv, sentence
from distilbench.data.retrieval_sets import set_folders
from distilbench.data.sampling import fixed_sample
from distilbench.data.sentences import text_digest
from distilbench.data.splits import EXPECTED, split_of

Pair = tuple[str, str]
Group = tuple[str, list[str]]
"""Who asks, and what answers."""
PAIRS, DUPLICATES, CLICKS = "pairs.tsv", "*.dup_pairs.tsv", "clicks.tsv"
PAIRS_EXPECTED = f"pairs (NAME/{PAIRS}, NAME/{DUPLICATES} or NAME/{CLICKS})"
SHARE = 4
"""One in so many groups of duplicates is held out for each of dev and test."""
MOST = 500
"""Questions that are held out for each of dev and test at most."""


@dataclass
class PairFile:
    """The pairs of one file: `train` are those to train on, `held_out` those that the file itself gives to dev or test.

    `texts` are all of its sides, in order; `directed`: whether only a left side asks.
    """

    name: str
    path: Path
    directed: bool
    train: list[Pair] = field(default_factory=list)
    held_out: dict[Split, list[Pair]] = field(default_factory=lambda: {"dev": [], "test": []})
    texts: dict[str, None] = field(default_factory=dict)
    left_out: int = 0

    @property
    def summary(self) -> str:
        """Describe what there is to train on."""
        what = "clicks" if self.directed else "duplicate pairs"
        left_out = f"; {self.left_out} rows of no split left out, {EXPECTED}" if self.left_out else ""
        return f"{self.path.parent.name}/{self.path.name}: {len(self.train)} {what} (train){left_out}"


def read_pairs(root: Path) -> list[PairFile]:
    """The pairs of a data folder's subfolders, and of itself."""
    files: list[PairFile] = []
    # These two came first when there were no others: a sample of all pairs depends on their order.
    order = {root / "quora": 0, root / "cqadupstack": 1, root: 3}
    for folder, name in sorted(set_folders(root).items(), key=lambda folder_and_name: order.get(folder_and_name[0], 2)):
        for path in files_of(folder, PAIRS):
            if {"question1", "question2"} <= set(column_names(path)):
                files.append(_read(name, path, ("question1", "question2")))
        for path in files_of(folder, DUPLICATES):
            files.append(_read(path.name.partition(".dup_pairs")[0], path, ("title1", "title2")))
        for path in files_of(folder, CLICKS):
            files.append(_read(name, path, ("query", "document"), directed=True))
    return files


def _read(name: str, path: Path, sides: tuple[str, str], directed: bool = False) -> PairFile:
    """The pairs of a file; those of questions may have a column `split`."""
    file = PairFile(name, path, directed)
    split = ("split",) if sides[0] == "question1" and "split" in column_names(path) else ()
    labels = () if directed else ("is_duplicate", *split)
    into = {"train": file.train, "dev": file.held_out["dev"], "test": file.held_out["test"]}
    for row, (one, two, *more) in read_tsv(path, (*sides, *labels)):
        pairs = not more or flag(path, row, "is_duplicate", more[0])
        of_split = split_of(more[1]) if split else "train"
        if of_split is None:
            file.left_out += 1
            continue
        pair = sentence(path, row, sides[0], one), sentence(path, row, sides[1], two)
        file.texts.update(dict.fromkeys(pair))
        if pairs:
            into[of_split].append(pair)
    return file


def make_searches(files: Sequence[PairFile], limit: int | None, builder: CorpusBuilder) -> set[str]:
    """Add a dev and a test set made of the pairs of each file; what they ask. Held-out pairs leave the file's `train`.

    Where a file itself gives pairs to dev or test, these are taken; where it gives them to one of the two, half of them go to
    the other. Where a set has the name of a file's folder already, the made one has the file's name too.
    """
    asked: set[str] = set()
    for file in files:
        taken = {known.name for known in builder.retrieval}
        name = f"{file.name}/{file.path.name.partition('.')[0]}" if file.name in taken else file.name
        groups = _held_out_groups(file)
        queries = {asks for split in groups.values() for asks, _ in split}
        documents = [text for text in file.texts if text not in queries]
        for split, members in groups.items():
            if not members:
                continue
            needed = dict.fromkeys(text for _, answers in members for text in answers)
            left = None if limit is None else max(0, limit - len(needed))
            others = fixed_sample((text for text in documents if text not in needed), left)
            sampled = sorted([*needed, *others], key=text_digest)  # no text gains by its place (`retrieval_sets`)
            position = {text: i for i, text in enumerate(sampled)}
            builder.add_retrieval(
                name,
                split,
                [asks for asks, _ in members],
                sampled,
                [{position[text]: 1.0 for text in answers} for _, answers in members],
            )
            kind = "queries find what was chosen for them" if file.directed else "questions find their duplicates"
            counted = f"{len(members)} {kind} among {len(sampled)} texts"
            builder.found.append(f"{name} retrieval, {split}, made of {file.path.name}: {counted}")
        asked |= queries
    return asked


def _held_out_groups(file: PairFile) -> dict[Split, list[Group]]:
    """By split who asks, and what answers; the rest stays in the file's `train`."""
    given = {split: list(_groups(pairs, file.directed)) for split, pairs in file.held_out.items()}
    if any(given.values()):
        if not (given["dev"] and given["test"]):
            every = given["dev"] or given["test"]
            given = {"dev": every[::2], "test": every[1::2]}
        return {split: _apart(groups, given) for split, groups in given.items()}
    groups = list(_groups(file.train, file.directed))
    count = min(MOST, len(groups) // SHARE)
    held: dict[Split, list[Group]] = {"dev": groups[:count], "test": groups[count : 2 * count]}
    taken = {text for members in held.values() for asks, answers in members for text in (asks, *answers)}
    asks = {query for members in held.values() for query, _ in members}
    # Of clicks a document may answer other queries too, which are trained on; of duplicates the whole group is left out.
    file.train = [pair for pair in file.train if not ({pair[0]} & asks if file.directed else set(pair) & taken)]
    return {split: _apart(members, held) for split, members in held.items()}


def _apart(members: Sequence[Group], every: Mapping[Split, Sequence[Group]]) -> list[Group]:
    """The questions with the answers that ask nothing themselves, at most `MOST`."""
    asks = {query for groups in every.values() for query, _ in groups}
    found = ((query, [text for text in answers if text not in asks]) for query, answers in members)
    return [(query, answers) for query, answers in found if answers][:MOST]


def _groups(pairs: Sequence[Pair], directed: bool) -> Iterator[Group]:
    """Who asks, and what answers, in an order that depends on the texts alone.

    Of clicks each query with its documents; of duplicates each group that they connect, of which one text asks.
    """
    pairs = [pair for pair in pairs if pair[0] != pair[1]]
    asks = {text for pair in pairs for text in pair[: 1 if directed else 2]}
    texts = sorted(asks, key=lambda text: text_digest(text, 8))
    number, groups = {text: i for i, text in enumerate(texts)}, defaultdict[int, dict[str, None]](dict)
    if directed:
        for query, document in pairs:
            groups[number[query]][document] = None
        yield from ((query, list(groups[number[query]])) for query in texts)
    elif texts:
        ends = np.array([[number[one], number[two]] for one, two in pairs]).T
        graph = coo_array((np.ones(len(pairs)), (ends[0], ends[1])), shape=(len(texts), len(texts)))
        for text, group in zip(texts, connected_components(graph, directed=False)[1].tolist(), strict=True):
            groups[group][text] = None
        yield from ((first, sorted(others)) for first, *others in groups.values())
