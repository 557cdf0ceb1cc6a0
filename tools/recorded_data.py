"""The small data folders that the recorded trials were trained and judged on, cut from a large one (docs/data.md).

python tools/recorded_data.py DIR OUT

OUT/stsb: every third pair of STS-B dev to select by. OUT/sick: SICK dev, for trials of other data. Both train on the same
text: `unlabeled/`, `cqadupstack/` and the triplets of DIR, which `--max-sentences` and its like cut further.
"""

from __future__ import annotations

import argparse
from pathlib import Path

TEST_STEP = 7
"""Every so many-th pair of STS-B test: the rows of the leaderboard, of which nothing is made here."""
TEXT = ("unlabeled", "cqadupstack", "nli")


def thin(source: Path, target: Path, step: int) -> None:
    """Keep the header and every `step`-th row of a table."""
    header, *rows = source.read_text(encoding="utf-8").splitlines(keepends=True)
    target.write_text("".join([header, *rows[::step]]), encoding="utf-8")


def main() -> None:
    """Make both folders."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    source, target = given.source.resolve(), given.out
    for name, dev, step in (("stsb", "STSB.dev.tsv", 3), ("sick", "SICK.dev.tsv", 1)):
        folder = target / name / "sts"
        folder.mkdir(parents=True, exist_ok=True)
        thin(source / "sts" / dev, folder / dev, step)
        thin(source / "sts" / "STSB.test.tsv", folder / "STSB.test.tsv", TEST_STEP)
        for link, linked in (
            (folder / "STSB.train.tsv", source / "sts" / "STSB.train.tsv"),
            *((target / name / text, source / text) for text in TEXT),
        ):
            if not link.exists():
                link.symlink_to(linked)


if __name__ == "__main__":
    main()
