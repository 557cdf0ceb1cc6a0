"""HPD's retrieval of duplicates (section 4.2) as sets for `distilbench evaluate`: question2 is indexed, question1 asks.

    python benchmarks/duplicates.py DIR/quora/pairs.tsv OUT

writes OUT/quora-duplicates with a corpus, queries and judgements of the splits dev and test.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

from distilbench.data.readers import read_tsv

NAME = "quora-duplicates"


def main() -> None:
    """Write the sets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pairs", type=Path)
    parser.add_argument("out", type=Path)
    asked = parser.parse_args()
    write_searches(asked.pairs, asked.out / NAME)


def write_searches(pairs: Path, folder: Path) -> None:
    """A set for each split that has duplicates, whose documents are the second questions of all its pairs."""
    (folder / "retrieval").mkdir(parents=True)
    rows = [fields for _, fields in read_tsv(pairs, ("question1", "question2", "is_duplicate", "split"))]
    for split in ("dev", "test"):
        own = [(one.strip(), two.strip(), duplicate) for one, two, duplicate, of in rows if of == split]
        answered = dict.fromkeys((one, two) for one, two, duplicate in own if duplicate == "1")
        document = {text: f"d{i}" for i, text in enumerate(dict.fromkeys(two for _, two, _ in own))}
        query = {text: f"q{i}" for i, text in enumerate(dict.fromkeys(one for one, _ in answered))}
        if query:
            _write(folder / f"corpus.{split}.tsv", "doc_id\ttext", (f"{i}\t{text}" for text, i in document.items()))
            judged = (f"{query[one]}\t{document[two]}\t1" for one, two in answered)
            _write(folder / "retrieval" / f"qrels.{split}.tsv", "query_id\tdoc_id\tscore", judged)
            texts = (f"{i}\t{text}" for text, i in query.items())
            _write(folder / "retrieval" / f"queries.{split}.tsv", "query_id\ttext", texts)


def _write(path: Path, header: str, rows: Iterable[str]) -> None:
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
