"""Data folders of the proof, made of the real data: the study's own, and those of three users.

    python benchmarks/folders.py DIR OUT

OUT/study is what all methods are swept on. It has links to DIR's STS and classification sets, triplets and Quora's
documents. Half of Quora's dev queries (drawn with a fixed seed) are its dev queries, the others its test queries. TrecQA is
there in BEIR's layout: a question finds its answers among the sentences of all questions.

OUT/users has a folder for each of three users who have nothing but text and pairs:

    stackexchange   titles of two sites, and which of them are duplicates
    captions        captions of photographs; those of one photograph are a group
    quora           questions, and which of them are duplicates

Of each, some groups are held out as dev pairs and as many as test pairs (500 at most, a quarter of the groups at most). No
text of a held-out group is in the user's training text or pairs, nor in those of OUT/study: its students can be scored on a
user's test pairs beside the user's own.

A folder that is there is written anew, with the same content.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import hashlib
import itertools
import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

Row = dict[str, str]
Group = tuple[str, ...]
"""Texts that say the same."""
LINKED = ("sts", "sts_senteval_tok", "sc", "nli")
SHARE, MOST = 4, 500


class User(NamedTuple):
    """What a user has: `rows` of pairs (text, text, whether they say the same) to train on, and held-out groups."""

    name: str
    rows: list[tuple[str, str, bool]]
    dev: list[Group]
    test: list[Group]

    @property
    def held_out(self) -> set[str]:
        """The texts of the held-out groups."""
        return {text for group in (*self.dev, *self.test) for text in group}


def main() -> None:
    """Write all folders, and say what is in them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("out", type=Path)
    asked = parser.parse_args()
    users = (stackexchange(asked.source), captions(asked.source), quora(asked.source))
    for user in users:
        print(write_user(asked.out / "users" / user.name, user))
    print(write_study(asked.source, asked.out / "study", set().union(*(user.held_out for user in users))))


def stackexchange(source: Path) -> User:
    """The titles of both sites; groups are drawn from those that duplicates connect."""
    rows = [
        (row["title1"], row["title2"], row["is_duplicate"] == "1")
        for file in sorted((source / "cqadupstack").glob("*.dup_pairs.tsv*"))
        for row in read_table(file)
    ]
    groups = sorted(connected((one, two) for one, two, same in rows if same), key=order)
    count = min(MOST, len(groups) // SHARE)
    return User("stackexchange", rows, groups[:count], groups[count : 2 * count])


def captions(source: Path) -> User:
    """The captions of each photograph; dev are photographs of Multi30k's validation set, test those of its test set."""
    photographs: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for row in read_table(source / "multi30k" / "captions.tsv.gz"):
        split, _, _ = row["image"].rpartition("-")
        photographs[split][row["image"]].append(row["text"])
    groups = {split: [tuple(dict.fromkeys(texts)) for texts in of.values()] for split, of in photographs.items()}
    rows = [(one, two, True) for group in groups["train"] for one, two in itertools.pairwise(group)]
    dev, test = (sorted(groups[split], key=order)[:MOST] for split in ("val", "test_2016"))
    return User("captions", rows, dev, test)


def quora(source: Path) -> User:
    """The pairs of questions of Quora's split train; groups are drawn from the duplicates of its split dev."""
    table = read_table(source / "quora" / "pairs.tsv.gz")
    given: dict[str, list[tuple[str, str, bool]]] = defaultdict(list)
    for row in table:
        given[row["split"]].append((row["question1"], row["question2"], row["is_duplicate"] == "1"))
    groups = sorted(connected((one, two) for one, two, same in given["dev"] if same), key=order)
    count = min(MOST, len(groups) // SHARE)
    return User("quora", given["train"], groups[:count], groups[count : 2 * count])


def connected(pairs: Iterable[tuple[str, str]]) -> Iterator[Group]:
    """The groups that pairs connect, in the order of their first texts."""
    others: dict[str, dict[str, None]] = defaultdict(dict)
    for one, two in pairs:
        if one != two:
            others[one][two] = others[two][one] = None
    seen: set[str] = set()
    for text in others:
        if text in seen:
            continue
        group, open_texts = {text: None}, [text]
        while open_texts:
            for other in others[open_texts.pop()]:
                if other not in group:
                    group[other] = None
                    open_texts.append(other)
        seen |= group.keys()
        yield tuple(group)


def order(group: Group) -> bytes:
    """An order that depends on the texts alone."""
    return hashlib.blake2b("\t".join(sorted(group)).encode(), digest_size=8).digest()


def write_user(out: Path, user: User) -> str:
    """Write a user's folder: `pairs.tsv` with splits, and `unlabeled/text.tsv`; what is in it."""
    held_out = user.held_out
    train = [row for row in user.rows if held_out.isdisjoint(row[:2]) and row[0] != row[1]]
    texts = dict.fromkeys(text for one, two, _ in train for text in (one, two))
    pairs = [_pair(one, two, same, "train") for one, two, same in train]
    for split, groups in (("dev", user.dev), ("test", user.test)):
        pairs += [_pair(group[0], other, True, split) for group in groups for other in group[1:]]
    write_table(out / "pairs.tsv", pairs)
    write_table(out / "unlabeled" / "text.tsv", [{"text": text} for text in texts])
    duplicates = sum(same for _, _, same in train)
    return f"{out}: {len(texts)} texts and {duplicates} pairs to train on, {len(user.dev)} groups dev, {len(user.test)} test"


def _pair(one: str, two: str, same: bool, split: str) -> Row:
    return {"question1": one, "question2": two, "is_duplicate": str(int(same)), "split": split}


def write_study(source: Path, out: Path, held_out: Collection[str]) -> str:
    """Write the study's folder, without the `held_out` texts in what is trained on; what was left out."""
    for name in LINKED:
        for file in sorted((source / name).iterdir()):
            link(file, out / name / file.name)
    link(source / "quora" / "corpus.tsv.gz", out / "quora" / "corpus.tsv.gz")
    part_queries(source / "quora" / "retrieval", out / "quora" / "retrieval")
    trecqa(source / "retrieval_extra", out / "trecqa")
    pairs = read_table(source / "quora" / "pairs.tsv.gz")
    kept_pairs = [
        row for row in pairs if row["split"] != "train" or not held_out & {row["question1"], row["question2"]}
    ]
    write_table(out / "quora" / "pairs.tsv", kept_pairs)
    sentences = [row for file in sorted((source / "unlabeled").iterdir()) for row in read_table(file)]
    kept = [row for row in sentences if row["text"] not in held_out]
    write_table(out / "unlabeled" / "sentences.tsv", kept)
    return (
        f"{out}: {len(kept)} of {len(sentences)} sentences and {len(kept_pairs)} of {len(pairs)} pairs; the others have a "
        "text that is held out for a user"
    )


def link(file: Path, at: Path) -> None:
    """A link at `at` to `file`, in the place of what is there."""
    at.parent.mkdir(parents=True, exist_ok=True)
    at.unlink(missing_ok=True)
    at.symlink_to(file.resolve())


def part_queries(source: Path, out: Path) -> None:
    """Half of the dev queries with their judgements as the split dev, the others as the split test."""
    queries, judgements = read_table(source / "queries.dev.tsv"), read_table(source / "qrels.dev.tsv")
    shuffled = np.random.default_rng(0).permutation(len(queries))
    halves = {"dev": shuffled[: len(shuffled) // 2], "test": shuffled[len(shuffled) // 2 :]}
    for split, rows in halves.items():
        ids = {queries[row]["query_id"] for row in rows}
        write_table(out / f"queries.{split}.tsv", [query for query in queries if query["query_id"] in ids])
        write_table(out / f"qrels.{split}.tsv", [judged for judged in judgements if judged["query_id"] in ids])


def trecqa(source: Path, out: Path) -> None:
    """TrecQA in BEIR's layout; a question without an answer among its sentences is left out."""
    documents: dict[str, str] = {}
    questions: dict[str, str] = {}
    for split in ("train", "dev", "test"):
        answers: dict[tuple[str, str], int] = {}
        for row in read_table(source / f"trecqa.{split}.tsv"):
            document = documents.setdefault(row["sentence"], f"d{len(documents)}")
            if row["label"] == "1":
                answers[questions.setdefault(row["question"], f"q{len(questions)}"), document] = 1
        if split != "train":
            judged = [{"query-id": q, "corpus-id": d, "score": "1"} for q, d in answers]
            write_table(out / "qrels" / f"{split}.tsv", judged)
    for name, texts in (("corpus", documents), ("queries", questions)):
        lines = (json.dumps({"_id": number, "text": text}) for text, number in texts.items())
        (out / f"{name}.jsonl").write_text("\n".join(lines) + "\n")


def read_table(path: Path) -> list[Row]:
    """The rows of a TSV file with a header and no quoting, plain or gzipped."""
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def write_table(path: Path, rows: Sequence[Row]) -> None:
    """Write such a file, and its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.write("\t".join(rows[0]) + "\n")
        file.writelines("\t".join(row.values()) + "\n" for row in rows)


if __name__ == "__main__":
    main()
