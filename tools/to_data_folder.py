"""Write SentEval's, MS MARCO's or TrecQA's own files as a data folder (docs/data.md).

python tools/to_data_folder.py senteval SENTEVAL/data OUT
python tools/to_data_folder.py msmarco FOLDER OUT
python tools/to_data_folder.py trecqa FOLDER OUT

SentEval: what `get_transfer_data.bash` makes. Its STS sets, of which pairs without a gold score are left out, as SentEval
does; STS-B, SICK and MRPC as pair tasks too, where every tenth training pair of MRPC is its dev set; its classification
sets; and the training sentences of STS-B and SICK as `unlabeled/`.

MS MARCO: `collection.tsv`, `queries.SPLIT.tsv`, `qrels.SPLIT.tsv` (of dev also `dev.small`), each perhaps gzipped.

TrecQA: `trecqa.SPLIT.tsv` (question, label, sentence). The documents are the sentences of all splits; questions without an
answer among them are left out.
"""

from __future__ import annotations

import argparse
import gzip
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, zip_longest
from pathlib import Path

SUBSETS = {
    "STS12": ("MSRpar", "MSRvid", "SMTeuroparl", "surprise.OnWN", "surprise.SMTnews"),
    "STS13": ("FNWN", "headlines", "OnWN"),
    "STS14": ("deft-forum", "deft-news", "headlines", "images", "OnWN", "tweet-news"),
    "STS15": ("answers-forums", "answers-students", "belief", "headlines", "images"),
    "STS16": ("answer-answer", "headlines", "plagiarism", "postediting", "question-question"),
}
"""What SentEval evaluates. STS13's fourth, SMT, has a licence that forbids passing it on."""
ONE_CLASS = {
    "MR": {"rt-polarity.pos": "1", "rt-polarity.neg": "0"},
    "CR": {"custrev.pos": "1", "custrev.neg": "0"},
    "SUBJ": {"subj.objective": "1", "subj.subjective": "0"},
    "MPQA": {"mpqa.pos": "1", "mpqa.neg": "0"},
}
SICK = {"train": "train", "dev": "trial", "test": "test_annotated"}
SPLITS = ("train", "dev", "test")
PAIR = ("sentence1", "sentence2")
DEV_EVERY = 10

Row = Sequence[str]


class Bad(Exception):
    """A line that is not as it should be."""


def lines(path: Path, encoding: str = "utf-8-sig") -> Iterator[str]:
    """The lines of a file, without their ends; a line ends at LF alone."""
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                yield line.decode(encoding if number == 1 else encoding.removesuffix("-sig")).rstrip("\r\n")
            except UnicodeDecodeError as error:
                raise Bad(f"{path}, row {number}: not {encoding} ({error.reason})") from None


def fields(path: Path, least: int, split: Callable[[str], Sequence[str]]) -> Iterator[Sequence[str]]:
    """The fields of each line, of which there must be at least so many."""
    for number, line in enumerate(lines(path), start=1):
        found = split(line)
        if len(found) < least:
            raise Bad(f"{path}, row {number}: {len(found)} fields, expected {least}: {line:.80}")
        yield found


def tabs(line: str) -> list[str]:
    """The fields of a line with tabs between."""
    return line.split("\t")


def write(path: Path, header: Sequence[str], rows: Iterable[Row]) -> None:
    """A table of a data folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    count = 0
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for row in chain([header], rows):
            file.write("\t".join(" ".join(field.split("\t")).strip() for field in row) + "\n")
            count += 1
    print(f"{path}: {count - 1:,} rows")


def named(path: Path, *columns: str) -> list[Row]:
    """The named columns of a table with a header."""
    header, *rows = fields(path, 1, tabs)
    short = next((row for row, found in enumerate(rows, start=2) if len(found) < len(header)), None)
    if short or not set(columns) <= set(header):
        raise Bad(f"{path}, row {short or 1}: expected {len(header)} fields, among them {', '.join(columns)}")
    return [[row[header.index(column)] for column in columns] for row in rows]


def senteval(source: Path, out: Path) -> None:
    """SentEval's folder."""
    down = source / "downstream"
    if not down.is_dir():
        raise Bad(f"{source}: no folder downstream in it; expected what SentEval's get_transfer_data.bash makes")
    for group, subsets in SUBSETS.items():
        for subset in subsets:
            pairs, gold = (down / f"STS/{group}-en-test/STS.{kind}.{subset}.txt" for kind in ("input", "gs"))
            if pairs.is_file() and gold.is_file():
                write(
                    out / f"sts/{group}.{subset.removeprefix('surprise.')}.tsv", (*PAIR, "score"), scored(pairs, gold)
                )
    training: list[Row] = []
    for split in SPLITS:
        if (path := down / f"STS/STSBenchmark/sts-{split}.csv").is_file():
            rows = [(row[5], row[6], row[4]) for row in fields(path, 7, tabs)]
            write(out / f"sts/STSB.{split}.tsv", (*PAIR, "score"), rows)
            training += [(text,) for row in rows for text in row[:2] if split == "train"]
    for split, name in SICK.items():
        if (path := down / f"SICK/SICK_{name}.txt").is_file():
            table = named(path, "sentence_A", "sentence_B", "relatedness_score", "entailment_judgment")
            write(out / f"sts/SICK.{split}.tsv", (*PAIR, "score", "entailment"), table)
            training += [(text,) for row in table for text in row[:2] if split == "train"]
    if training:
        write(out / "unlabeled/senteval.tsv", ("text",), training)
    for split in ("train", "test"):
        if (path := down / f"MRPC/msr_paraphrase_{split}.txt").is_file():
            table = named(path, "#1 String", "#2 String", "Quality")
            write(out / f"sc/MRPC.{split}.tsv", (*PAIR, "label"), table)
            dev = [row for i, row in enumerate(table, start=1) if split == "train" and i % DEV_EVERY == 0]
            rest = [row for i, row in enumerate(table, start=1) if split != "train" or i % DEV_EVERY]
            write(out / f"glue/MRPC.{split}.tsv", (*PAIR, "label"), rest)
            if dev:
                write(out / "glue/MRPC.dev.tsv", (*PAIR, "label"), dev)
    classification(down, out / "sc")


def scored(pairs: Path, gold: Path) -> Iterator[Row]:
    """Two sentences and their score, of the pairs that have one."""
    for number, (pair, score) in enumerate(zip_longest(fields(pairs, 2, tabs), lines(gold)), start=1):
        if pair is None or score is None:
            raise Bad(f"{gold}, row {number}: expected as many lines as {pairs.name} has")
        if score.strip():
            yield pair[0], pair[1], score


def classification(down: Path, out: Path) -> None:
    """The classification sets but for MRPC."""
    for name, files in ONE_CLASS.items():
        if all((down / name / file).is_file() for file in files):
            texts = ((text, label) for file, label in files.items() for text in lines(down / name / file, "latin-1"))
            write(out / f"{name}.tsv", ("text", "label"), texts)
    for split in SPLITS:
        if (path := down / f"SST/binary/sentiment-{split}").is_file():
            write(out / f"SST2.{split}.tsv", ("text", "label"), fields(path, 2, tabs))
        if (path := down / f"SST/fine/sentiment-{split}").is_file():
            fine = fields(path, 2, lambda line: line.strip().split(" ", 1))
            write(out / f"SST5.{split}.tsv", ("text", "label"), ((text, label) for label, text in fine))
    for split, file in (("train", "train_5500.label"), ("test", "TREC_10.label")):
        if (path := down / f"TREC/{file}").is_file():
            parted = (line.partition(" ") for line in lines(path, "latin-1"))
            rows = ((text, label.partition(":")[0]) for label, _, text in parted)
            write(out / f"TREC.{split}.tsv", ("text", "label"), rows)


def msmarco(source: Path, out: Path) -> None:
    """MS MARCO's files, which have no header."""

    def file(*names: str) -> Path | None:
        return next((p for name in names for end in ("", ".gz") if (p := source / f"{name}{end}").is_file()), None)

    collection = file("collection.tsv")
    if collection is None:
        raise Bad(f"{source}: no collection.tsv in it")
    write(out / source.name / "corpus.tsv", ("doc_id", "text"), (row[:2] for row in fields(collection, 2, tabs)))
    for split in SPLITS:
        queries, qrels = (file(f"{kind}.{split}.small.tsv", f"{kind}.{split}.tsv") for kind in ("queries", "qrels"))
        if queries and qrels:
            folder = out / source.name / "retrieval"
            asked = (row[:2] for row in fields(queries, 2, tabs))
            write(folder / f"queries.{split}.tsv", ("query_id", "text"), asked)
            judged = ((row[0], row[2], row[3]) for row in fields(qrels, 4, str.split))
            write(folder / f"qrels.{split}.tsv", ("query_id", "doc_id", "score"), judged)


def trecqa(source: Path, out: Path) -> None:
    """TrecQA's candidate sentences as documents."""
    found = {split: path for split in SPLITS if (path := source / f"trecqa.{split}.tsv").is_file()}
    if not found:
        raise Bad(f"{source}: no trecqa.SPLIT.tsv in it")
    documents, queries = dict[str, str](), dict[str, str]()
    for split, path in found.items():
        judged = dict[tuple[str, str], str]()
        for question, label, sentence in named(path, "question", "label", "sentence"):
            document = documents.setdefault(sentence, f"d{len(documents)}")
            if label == "1":
                judged[queries.setdefault(question, f"q{len(queries)}"), document] = label
        folder = out / "trecqa" / "retrieval"
        asked = {query for query, _ in judged}
        texts = ((query, text) for text, query in queries.items() if query in asked)
        write(folder / f"queries.{split}.tsv", ("query_id", "text"), texts)
        write(folder / f"qrels.{split}.tsv", ("query_id", "doc_id", "score"), ((*key, "1") for key in judged))
    write(out / "trecqa" / "corpus.tsv", ("doc_id", "text"), ((name, text) for text, name in documents.items()))


KINDS = {"senteval": senteval, "msmarco": msmarco, "trecqa": trecqa}


def main() -> None:
    """Convert a folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=tuple(KINDS))
    parser.add_argument("source", type=Path)
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    try:
        KINDS[given.kind](given.source.resolve(), given.out)
    except (Bad, OSError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
