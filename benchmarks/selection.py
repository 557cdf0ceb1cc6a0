"""What is lost by selecting students without labels, or by another task than the one that they are used for.

    python benchmarks/selection.py data DIR STUDY          the study's data folder
    python benchmarks/selection.py rows ROWS.yaml          settings drawn at random from the search spaces
    distilbench compare ROWS.yaml --data STUDY --select sts=1,retrieval=1,fidelity=1 --seeds 1 --steps 300
    python benchmarks/selection.py regret RECORDS          what each criterion chooses, and what that costs
    python benchmarks/selection.py chosen RECORDS ROWS.yaml OUT.yaml   those rows, to be trained with three seeds
    distilbench compare OUT.yaml --data STUDY --select sts=1,retrieval=1,fidelity=1 --seeds 3 --steps 300 --max-documents 0
    python benchmarks/selection.py pays RECORDS SEEDS  what each criterion's choice has, over these seeds
    python benchmarks/selection.py sizes RECORDS ...   chosen by search and by fidelity at each size, over all collections

STUDY has links to DIR's STS sets, sentences and pairs. Half of Quora's dev queries (drawn with a fixed seed) are its dev
queries, the others its test queries, which no criterion sees. TrecQA is there in BEIR's layout: a question finds its
answers among the sentences of all questions.

Each row is a training whose students are measured by all three criteria and on all test sets, in every code. A criterion
chooses the row that is best by it among those of at most `--bytes` bytes a vector: of each method, and of all together. The
regret on a test measure is what the criterion that belongs to this measure gains over another one; its 95 % interval is of
2,000 resamples of the drawn settings.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import numpy as np
import yaml
from folders import link, part_queries, trecqa
from replay.answers import random_settings

from distilbench.methods import get_method
from distilbench.records import ScoreRecord, read_records
from distilbench.reporting.board import interval
from distilbench.search.restrict_space import within_width
from distilbench.search.space_files import load_space, shipped_folder

SPACES = {
    "neighbours": "real",
    "mcr2": "real",
    "hpd": "static",
    "mse": "static",
    "contrastive": "static",
}
"""The methods and their spaces; those of `static` train static students."""
NATIVE = 384
CRITERIA = ("sts", "retrieval", "fidelity")
TESTS = ("STS", "Quora nDCG@10", "Quora MRR@10", "TrecQA nDCG@10")
OWN = {"STS": "sts", "Quora nDCG@10": "retrieval", "Quora MRR@10": "retrieval", "TrecQA nDCG@10": "retrieval"}
"""The criterion that belongs to each test measure."""
RESAMPLES = 2_000


def make_data(source: Path, out: Path) -> None:
    """Write the study's folder."""
    for name in ("sts", "unlabeled"):
        for file in sorted((source / name).iterdir()):
            link(file, out / name / file.name)
    for name in ("corpus.tsv.gz", "pairs.tsv.gz"):
        link(source / "quora" / name, out / "quora" / name)
    part_queries(source / "quora" / "retrieval", out / "quora" / "retrieval")
    trecqa(source / "retrieval_extra", out / "trecqa")


def make_rows(out: Path, draws: int) -> None:
    """Draw `draws` settings of every method."""
    rows = []
    for method, folder in SPACES.items():
        path = shipped_folder() / folder / f"{method}.yaml"
        space = within_width(load_space(path, method, get_method(method).params_type, NATIVE), NATIVE)
        for number, params in enumerate(random_settings(space, draws, seed=0)):
            params |= {"labelled": "pairs"} if "labelled" in params else {}  # the study's folder has no triplets
            student = {"student": "static"} if folder == "static" else {}
            rows.append({"name": f"{method} {number}", "method": method, **student, "params": params})
    out.write_text(yaml.safe_dump({"rows": rows}, sort_keys=False))


class Candidate(NamedTuple):
    """A row in one code: what it was drawn as, and its figures by criterion and by test measure."""

    method: str
    configuration: str
    label: str
    dim: int
    code: str
    size: int
    criterion: dict[str, float]
    test: dict[str, float]


def candidates(path: Path, most: int) -> list[Candidate]:
    """The students of at most `most` bytes a vector."""
    records = [r for r in read_records(path) if isinstance(r, ScoreRecord)]
    students = [r for r in records if r.role == "student" and r.bytes_per_vector <= most]
    return [
        Candidate(
            r.method, r.configuration, r.label, r.dim, r.quantisation, r.bytes_per_vector, _criteria(r), _tests(r)
        )
        for r in students
    ]


def _criteria(record: ScoreRecord) -> dict[str, float]:
    return {s.set: s.value for s in record.scores if s.task == "selection" and s.set in CRITERIA}


def _tests(record: ScoreRecord) -> dict[str, float]:
    sts = [
        s.value for s in record.scores if (s.task, s.split, s.metric, s.variant) == ("sts", "test", "spearman", "all")
    ]
    ndcg10, mrr10 = searched(record, "ndcg@10"), searched(record, "mrr@10")
    quora = {"Quora nDCG@10": ndcg10["quora"], "Quora MRR@10": mrr10["quora"]}
    return {"STS": float(np.mean(sts)), **quora, "TrecQA nDCG@10": ndcg10["trecqa"]}


def searched(record: ScoreRecord, metric: str) -> dict[str, float]:
    """A metric of each retrieval test set."""
    wanted = ("retrieval", metric, "test", "all")
    return {s.set: s.value for s in record.scores if (s.task, s.metric, s.split, s.variant) == wanted}


def grouped(found: list[Candidate]) -> dict[str, list[Candidate]]:
    """Those of each method that is there, then all of them."""
    by_method = {method: [c for c in found if c.method == method] for method in SPACES}
    return {method: of for method, of in by_method.items() if of} | {"all": found}


def choice(found: list[Candidate], criterion: str) -> Candidate:
    """The one that is best by a criterion."""
    return max(found, key=lambda candidate: candidate.criterion[criterion])


def regrets(found: list[Candidate], rng: np.random.Generator) -> dict[tuple[str, str], np.ndarray]:
    """By test measure and criterion: the regret of all rows, then of each resample of the drawn settings."""
    own: dict[str, list[int]] = defaultdict(list)
    for i, candidate in enumerate(found):
        own[candidate.configuration].append(i)
    settings = list(own.values())
    by = {c: np.array([candidate.criterion[c] for candidate in found]) for c in CRITERIA}
    test = {t: np.array([candidate.test[t] for candidate in found]) for t in TESTS}
    samples = [np.arange(len(settings)), *rng.integers(len(settings), size=(RESAMPLES, len(settings)))]
    out: dict[tuple[str, str], list[float]] = defaultdict(list)
    for sample in samples:
        rows = np.concatenate([settings[i] for i in sample])
        chosen = {c: rows[np.argmax(by[c][rows])] for c in CRITERIA}
        for t in TESTS:
            for c in CRITERIA:
                out[t, c].append(test[t][chosen[OWN[t]]] - test[t][chosen[c]])
    return {key: np.array(values) for key, values in out.items()}


def print_regret(path: Path, most: int) -> None:
    """Print the tables, in Markdown."""
    found = candidates(path, most)
    print(f"Students of at most {most} bytes a vector.\n")
    print("| of | settings | rows | chosen by | row |" + "".join(f" {t} | regret |" for t in TESTS))
    print("|---" * (5 + 2 * len(TESTS)) + "|")
    for name, of in grouped(found).items():
        lost = regrets(of, np.random.default_rng(0))
        for c in CRITERIA:
            best = choice(of, c)
            cells = [name, str(len({x.configuration for x in of})), str(len(of)), c, f"{best.label}, {best.code}"]
            for t in TESTS:
                values = lost[t, c]
                low, high = np.percentile(values[1:], [2.5, 97.5])
                cells += [f"{best.test[t]:.2f}", "" if OWN[t] == c else f"{values[0]:+.2f} ({low:+.2f} to {high:+.2f})"]
            print("| " + " | ".join(cells) + " |")


class Deployed(NamedTuple):
    """A criterion's choice over its seeds: each test measure, and what a search of Quora costs."""

    test: dict[str, list[float]]
    milliseconds: float
    megabytes: float


def deployed(records: list[ScoreRecord], chosen: Candidate) -> Deployed:
    """What the records of other seeds say of the row that was chosen, in the code that it was chosen in."""
    own = [
        r
        for r in records
        if (r.role, r.configuration, r.dim, r.quantisation)
        == ("student", chosen.configuration, chosen.dim, chosen.code)
    ]
    whole = "flat" if chosen.code == "float32" else chosen.code
    flat = [i for r in own for i in r.indexes if (i.set, i.split, i.kind) == ("quora", "test", whole)]
    scores = [_tests(r) for r in own]
    return Deployed(
        {t: [values[t] for values in scores] for t in TESTS},
        float(np.median([i.ms_per_1000_queries for i in flat])),
        float(np.mean([i.bytes for i in flat])) / 1e6,
    )


def print_pays(drawn: Path, seeds: Path, most: int) -> None:
    """Print what each criterion's choice has over its seeds, with the half width of the mean's 95 % interval."""
    found = candidates(drawn, most)
    records = [r for r in read_records(seeds) if isinstance(r, ScoreRecord)]
    print("| of | chosen by | row | bytes |" + "".join(f" {t} |" for t in TESTS) + " ms per 1,000 queries | index MB |")
    print("|---" * (6 + len(TESTS)) + "|")
    for name, of in grouped(found).items():
        for c in CRITERIA:
            best = choice(of, c)
            of_seeds = deployed(records, best)
            cells = [name, c, f"{best.label}, {best.code}", str(best.size)]
            for values in of_seeds.test.values():
                cells.append(f"{np.mean(values):.2f} ± {interval(values) or 0:.2f}")
            print(f"| {' | '.join(cells)} | {of_seeds.milliseconds:,.0f} | {of_seeds.megabytes:.2f} |")


def write_chosen(path: Path, rows: Path, out: Path, most: int) -> None:
    """Write the rows that a criterion chose, of each method and of all."""
    found = candidates(path, most)
    chosen = {choice(of, c).configuration for of in grouped(found).values() for c in CRITERIA}
    drawn = yaml.safe_load(rows.read_text())["rows"]
    out.write_text(yaml.safe_dump({"rows": [row for row in drawn if row["name"] in chosen]}, sort_keys=False))


def print_sizes(paths: list[Path]) -> None:
    """Print what search and fidelity choose of every row at each number of bytes, and the mean nDCG@10 of its test sets.

    A row that several runs have, such as PCA, counts once.
    """
    distinct: dict[tuple[object, ...], ScoreRecord] = {}
    for r in (r for path in paths for r in read_records(path) if isinstance(r, ScoreRecord) and r.role != "teacher"):
        by = _criteria(r)
        if {"retrieval", "fidelity"} <= set(by):
            distinct.setdefault((r.method, r.dim, r.quantisation, r.documents, *by.values()), r)
    kinds: dict[tuple[bool, int], list[ScoreRecord]] = defaultdict(list)
    for r in distinct.values():
        kinds[bool(r.documents), r.bytes_per_vector].append(r)
    print("| documents of | bytes | rows | chosen by search | nDCG@10 | chosen by fidelity | nDCG@10 | worse on |")
    print("|---" * 8 + "|")
    for (pair, size), of in sorted(kinds.items(), key=lambda kind: (kind[0][0], -kind[0][1])):
        best = [max(of, key=lambda r: _criteria(r)[criterion]) for criterion in ("retrieval", "fidelity")]
        cells = ["the teacher" if pair else "its own", str(size), str(len(of))]
        by_search, by_fidelity = (searched(r, "ndcg@10") for r in best)
        for r, values in zip(best, (by_search, by_fidelity), strict=True):
            cells += [f"{r.configuration or r.label}, {r.quantisation}", f"{np.mean(list(values.values())):.2f}"]
        worse = sum(by_fidelity[name] < by_search[name] for name in by_search)
        print("| " + " | ".join(cells) + f" | {worse} of {len(by_search)} |")


PATHS = {"data": 2, "rows": 1, "regret": 1, "chosen": 3, "pays": 2}
"""How many files each step asks for; any number for `sizes`."""


def main() -> None:
    """Do one step of the study."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=(*PATHS, "sizes"))
    parser.add_argument("paths", type=Path, nargs="+")
    parser.add_argument("--draws", type=int, default=10, help="settings of each method")
    parser.add_argument("--bytes", type=int, default=64, dest="most")
    asked = parser.parse_args()
    if len(asked.paths) != PATHS.get(asked.step, len(asked.paths)):
        parser.error(f"{asked.step} asks for {PATHS[asked.step]} paths; you gave {len(asked.paths)}")
    paths: list[Path] = asked.paths
    match asked.step:
        case "data":
            make_data(*paths)
        case "rows":
            make_rows(paths[0], asked.draws)
        case "regret":
            print_regret(paths[0], asked.most)
        case "chosen":
            write_chosen(*paths, most=asked.most)
        case "sizes":
            print_sizes(paths)
        case "pays":
            print_pays(*paths, most=asked.most)


if __name__ == "__main__":
    main()
