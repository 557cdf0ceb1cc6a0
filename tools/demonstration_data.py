"""Write the demonstration's data folder out of SQuAD 1.1 dev and SNLI (distilbench/data/demonstration/SOURCES.md).

python tools/demonstration_data.py FOLDER distilbench/data/demonstration

FOLDER has `retrieval/squad` in BEIR's layout, with judgements of train, dev and test that are apart by article; and
`nli/snli.train_part.tsv.gz`, `snli.dev.tsv` and `snli.test.tsv`. What is drawn depends on the texts alone. No text is in
two of train, dev and test, whatever its case.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

Row = Sequence[object]
SPLITS = ("test", "dev", "train")
"""A text that is in several belongs to the first."""
PASSAGES, QUESTIONS, QUERIES = 300, 2500, {"dev": 500, "test": 600}
TOPICS, OF_TOPIC = 10, {"test": 30, "dev": 20, "train": 60}
PREMISES = {"train": 600, "dev": 200, "test": 300}
PAIRS, TRIPLETS, SENTENCES = 1000, 1500, 500
GRADES = {"entailment": 2, "neutral": 1, "contradiction": 0}
LABELS = tuple(GRADES)


def digest(text: str) -> bytes:
    """An order that depends on the text alone."""
    return hashlib.sha256(text.encode()).digest()


def rows_of(path: Path) -> Iterator[list[str]]:
    """The rows of a TSV file, without its header."""
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
        next(file)
        yield from (line.rstrip("\n").split("\t") for line in file)


def write(path: Path, header: str, rows: Iterable[Row]) -> None:
    """Write a gzipped TSV file whose bytes depend on the rows alone."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [header.split(), *rows]
    text = "".join("\t".join(" ".join(str(value).split()) for value in line) + "\n" for line in lines)
    with path.open("wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as packed:
        packed.write(text.encode())


class Owners:
    """The split that each text belongs to."""

    def __init__(self) -> None:
        self.split_of: dict[str, str] = {}

    def take(self, split: str, *texts: str) -> bool:
        """Give texts to a split; False, and nothing is given, where another has one of them."""
        keys = [" ".join(text.casefold().split()) for text in texts]
        if any(self.split_of.get(key, split) != split for key in keys):
            return False
        self.split_of.update(dict.fromkeys(keys, split))
        return True


class Squad:
    """SQuAD's paragraphs, and the questions of each split."""

    def __init__(self, folder: Path, owners: Owners) -> None:
        with gzip.open(folder / "corpus.jsonl.gz", "rt", encoding="utf-8") as file:
            documents = [json.loads(line) for line in file]
        self.text = {doc["_id"]: doc["text"] for doc in documents}
        self.title = {doc["_id"]: doc["title"] for doc in documents}
        with (folder / "queries.jsonl").open(encoding="utf-8") as file:
            self.query = {query["_id"]: query["text"] for query in map(json.loads, file)}
        self.judged: dict[str, list[tuple[str, str]]] = {}
        for split in SPLITS:
            pairs = sorted(((q, d) for q, d, _ in rows_of(folder / f"qrels/{split}.tsv")), key=lambda p: digest(p[0]))
            once = {self.query[q].casefold(): (q, d) for q, d in reversed(pairs)}
            self.judged[split] = [p for p in reversed(once.values()) if owners.take(split, self.query[p[0]])]

    def write_search(self, root: Path, split: str, judged: Sequence[tuple[str, str]], documents: Sequence[str]) -> None:
        """Write the documents, queries and judgements of a split."""
        write(root / f"corpus.{split}.tsv.gz", "doc_id text", ((doc, self.text[doc]) for doc in documents))
        queries = ((number, self.query[q]) for number, (q, _) in enumerate(judged))
        write(root / f"retrieval/queries.{split}.tsv.gz", "query_id text", queries)
        qrels = ((number, d, 1) for number, (_, d) in enumerate(judged))
        write(root / f"retrieval/qrels.{split}.tsv.gz", "query_id doc_id score", qrels)

    def write_topics(self, root: Path, judged: Sequence[tuple[str, str]]) -> set[str]:
        """Write which article a question is about, for some questions of the largest articles; these questions."""
        counts = Counter(self.title[d] for _, d in judged)
        largest = sorted(counts, key=lambda title: (-counts[title], title))[:TOPICS]
        rows = defaultdict[str, list[Row]](list)
        for title in sorted(largest):
            questions = iter([self.query[q] for q, d in judged if self.title[d] == title])
            for split, count in OF_TOPIC.items():
                rows[split] += [(next(questions), title) for _ in range(count)]
        for split, examples in rows.items():
            write(
                root / f"SQuAD-article.{split}.tsv.gz",
                "text label",
                sorted(examples, key=lambda row: digest(str(row[0]))),
            )
        return {str(question) for examples in rows.values() for question, _ in examples}


def squad(source: Path, root: Path, owners: Owners) -> None:
    """Write the retrieval set, the pairs of a question and its paragraph, the questions, and the classification set."""
    parts = Squad(source / "retrieval/squad", owners)
    for split in ("dev", "test"):
        documents = sorted({d for _, d in parts.judged[split]}, key=digest)
        parts.write_search(root / "SQuAD", split, parts.judged[split][: QUERIES[split]], documents)
    trained = parts.judged["train"]
    chosen = set(sorted({d for _, d in trained}, key=lambda doc: digest(parts.text[doc]))[:PASSAGES])
    clicks = sorted((d, parts.query[q]) for q, d in trained if d in chosen)
    write(root / "SQuAD/clicks.tsv.gz", "query document", ((query, parts.text[d]) for d, query in clicks))
    others = [pair for pair in trained if pair[1] not in chosen]
    asked = parts.write_topics(root / "sc", others)
    questions = [parts.query[q] for q, _ in others if parts.query[q] not in asked]
    write(root / "unlabeled/questions.tsv.gz", "text", ([question] for question in questions[:QUESTIONS]))


def hypotheses(path: Path, split: str, owners: Owners) -> dict[str, dict[str, str]]:
    """By premise the first hypothesis of each label, where no other split has one of the texts."""
    found = defaultdict[str, dict[str, str]](dict)
    for premise, hypothesis, label, *_ in rows_of(path):
        texts = premise.strip(), hypothesis.strip()
        if label in GRADES and label not in found[texts[0]] and all(texts) and owners.take(split, *texts):
            found[texts[0]][label] = texts[1]
    return dict(sorted(found.items(), key=lambda item: digest(item[0])))


def snli(source: Path, root: Path, owners: Owners) -> None:
    """Write the graded sets, the pair task, the pairs, the triplets and the sentences."""
    names = {"train": "snli.train_part.tsv.gz", "dev": "snli.dev.tsv", "test": "snli.test.tsv"}
    for split in SPLITS:
        of = hypotheses(source / "nli" / names[split], split, owners)
        whole = [premise for premise in of if len(of[premise]) == len(GRADES)]
        drawn = [(p, of[p][label], label) for p in whole[: PREMISES[split]] for label in LABELS]
        write(root / f"nli/snli.{split}.tsv.gz", "premise hypothesis gold_label", drawn)
        if split != "train":
            graded = ((premise, text, GRADES[label]) for premise, text, label in drawn)
            write(root / f"sts/SNLI.{split}.tsv.gz", "sentence1 sentence2 score", graded)
    rest = [p for p in whole[PREMISES["train"] :]] + [p for p in of if len(of[p]) < len(GRADES)]
    contrasted = [p for p in rest if {"entailment", "contradiction"} <= of[p].keys()]
    entailed = [p for p in contrasted[TRIPLETS:] if "entailment" in of[p]][:PAIRS]
    triplets = ((p, of[p]["entailment"], of[p]["contradiction"], "snli.train_part") for p in contrasted[:TRIPLETS])
    write(root / "nli/triplets.tsv.gz", "anchor positive negative source", triplets)
    write(
        root / "snli/pairs.tsv.gz", "question1 question2 is_duplicate", ((p, of[p]["entailment"], 1) for p in entailed)
    )
    used = {*contrasted[:TRIPLETS], *entailed}
    write(root / "unlabeled/sentences.tsv.gz", "text", ([p] for p in [p for p in rest if p not in used][:SENTENCES]))


def main() -> None:
    """Write the folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("root", type=Path, metavar="DIR")
    given = parser.parse_args()
    owners = Owners()
    squad(given.folder, given.root, owners)
    snli(given.folder, given.root, owners)


if __name__ == "__main__":
    main()
