"""A report's file of records: the pages are built from it again, with what was computed from predictions."""

from __future__ import annotations

import csv
import html
import io
import json
import lzma
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner, Result

from distilbench.cli import app
from distilbench.errors import InputError
from distilbench.evaluation.bootstrap import Items
from distilbench.evaluation.predictions import Predictions, predictions_path
from distilbench.evaluation.sts import spearman
from distilbench.records import Score, ScoreRecord, append_records, read_records
from distilbench.reporting.board import leaderboard
from distilbench.reporting.study_file import RunRecord, read_study, write_study
from distilbench.storage.files import write_json

ROOT = Path(__file__).parents[2]
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'&{{7*7}}"
SETS, DEV = ("STS12", "STSB"), "STSB"
"""The rows: noise of their similarities, of the dev cosines alone, and their dimension."""
ROWS: dict[str, tuple[float, float, int, dict[str, Any]]] = {
    "teacher": (0.1, 0.0, 384, {"role": "teacher", "method": "teacher"}),
    "good": (1.0, 0.0, 64, {}),
    "good too": (1.0, 0.2, 48, {"role": "baseline", "method": "pca"}),
    "worse": (2.0, 0.2, 64, {"trial": 4}),
    "similar": (1.0, 0.2, 64, {"method": "mcr2"}),
}


def report(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["report", *map(str, arguments)])


def files(folder: Path) -> dict[str, bytes]:
    """What every file below `folder` says; of a compressed one what it holds, however well it was compressed."""
    said = {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    return {name: lzma.decompress(of) if name.endswith(".xz") else of for name, of in said.items()}


def letters(folder: Path) -> dict[str, str]:
    with (folder / "leaderboard.csv").open(newline="") as file:
        return {row["label"]: row["tie_group"] for row in csv.DictReader(file)}


@pytest.fixture
def make_run(make_score: Any, make_trial: Any, tmp_path: Path) -> Callable[..., Path]:
    """Makes a run that keeps the predictions of its rows, with settings and trials."""

    def make(name: str = "swept", rows: tuple[str, ...] = tuple(ROWS)) -> Path:
        run = tmp_path / "runs" / name
        gold = {s: np.random.default_rng(k).uniform(0, 5, 400) for k, s in enumerate(SETS)}
        dev_gold = np.random.default_rng(9).uniform(0, 5, 1500)
        records = []
        for label in rows:
            noise, own, dim, changes = ROWS[label]
            draw = np.random.default_rng(1)
            similarity = {s: g + noise * draw.standard_normal(len(g)) for s, g in gold.items()}
            dev = dev_gold + draw.standard_normal(1500)
            dev = dev + own * np.random.default_rng(dim).standard_normal(1500)
            scores = [
                Score(
                    task="sts", set=s, split="test", metric="spearman", variant="all", n=400, value=spearman(v, gold[s])
                )
                for s, v in similarity.items()
            ]
            value = spearman(dev, dev_gold)
            scores.append(
                Score(task="sts", set=DEV, split="dev", metric="spearman", variant="all", n=1500, value=value)
            )
            common = {"run": name, "record_id": f"{name} {label}", "scores": scores, "dim": dim}
            record = make_score(label, **(common | {"bytes_per_vector": 4 * dim} | changes))
            test = {f"sts/{s}/spearman": Items(similarity[s], gold[s]) for s in SETS}
            kept = Predictions(test, {f"sts/{DEV}/spearman": Items(dev, dev_gold)})
            kept.save(predictions_path(run, record.record_id))
            records.append(record)
        append_records(run / "scores.jsonl", records)
        append_records(run / "trials.jsonl", [make_trial(k, run=name) for k in range(6)])
        write_json(run / "config.json", {"seed": 7, "fixed": {"clip": 1.0, "note": HOSTILE}})
        return run

    return make


def test_the_pages_are_built_again_to_the_byte_without_the_run(make_run: Callable[..., Path], tmp_path: Path) -> None:
    run, first, again = make_run(), tmp_path / "first", tmp_path / "again"
    assert report(run, "--out", first, "--title", "A study").exit_code == 0
    written = files(first)
    shutil.rmtree(run)
    assert letters(first) == {"teacher": "", "good": "a", "similar": "a", "worse": "b", "good too": "a"}
    assert "<title>A study" in written["index.html"].decode()
    assert report(first / "records.jsonl.xz", "--out", again).exit_code == 0
    assert files(again) == written
    # A report's folder is as good as its file, and may be where the pages go.
    assert report(first, "--out", first).exit_code == 0 and files(first) == written
    # Neither ties nor settings come from nowhere: records alone have none.
    bare = tmp_path / "bare.jsonl"
    append_records(bare, read_records(first / "records.jsonl.xz"))
    assert report(bare, "--out", tmp_path / "bare").exit_code == 0
    refused = report(bare, "--out", bare / "x")
    assert refused.exit_code == 2 and "bare.jsonl is no folder; expected a folder that can" in refused.stderr
    assert set(letters(tmp_path / "bare").values()) == {""}
    text = (tmp_path / "bare" / "index.html").read_text()
    assert "Without a tie group" in text and "<title>bare" in text
    assert all("config.json was not there" in page.read_text() for page in (tmp_path / "bare" / "runs").iterdir())


def test_two_files_do_not_share_their_letters(make_run: Callable[..., Path], tmp_path: Path) -> None:
    for name, rows in (("one", ("teacher", "good", "worse")), ("two", ("teacher", "good too"))):
        report(make_run(name, rows), "--out", tmp_path / name)
    found = [tmp_path / name / "records.jsonl.xz" for name in ("one", "two")]
    assert report(*found, "--out", tmp_path / "both").exit_code == 0
    assert letters(tmp_path / "both") == {"teacher": "", "good": "", "worse": "", "good too": ""}
    text = (tmp_path / "both" / "index.html").read_text()
    assert "Without a tie group" in text and "<title>records, records" in text
    assert len(read_study(found).records) == 4 + 2 * 6, "the teacher counts once"
    configs = [own.config["seed"] for own in read_study(found).runs]
    assert configs == [7, 7], "each run's settings stay"
    # A run beside a file keeps its predictions: its own rows are compared.
    assert report(tmp_path / "one", tmp_path / "runs" / "two", "--out", tmp_path / "mixed").exit_code == 0
    assert letters(tmp_path / "mixed")["good too"] == "a" and letters(tmp_path / "mixed")["good"] == ""


def test_comparisons_of_other_rows_are_not_taken(make_run: Callable[..., Path], tmp_path: Path) -> None:
    report(make_run(), "--out", tmp_path / "first")
    study = read_study([tmp_path / "first"])
    assert study.report is not None
    kept = [r for r in study.records if not (isinstance(r, ScoreRecord) and r.label == "similar")]
    write_study(tmp_path / "fewer.jsonl.xz", kept, study.runs, study.report)
    assert report(tmp_path / "fewer.jsonl.xz", "--out", tmp_path / "fewer").exit_code == 0
    assert set(letters(tmp_path / "fewer").values()) == {""}


def test_what_a_file_says_is_escaped(make_run: Callable[..., Path], tmp_path: Path) -> None:
    report(make_run(), "--out", tmp_path / "first")
    study = read_study([tmp_path / "first"])
    assert study.report is not None
    compared = study.report.comparison.model_copy(update={"without": [HOSTILE]})
    said = study.report.model_copy(update={"title": HOSTILE, "notes": [HOSTILE], "comparison": compared})
    runs = [RunRecord(run="swept", config={HOSTILE: [HOSTILE]}, stage=HOSTILE)]
    write_study(tmp_path / "hostile.jsonl.xz", study.records, runs, said)
    assert report(tmp_path / "hostile.jsonl.xz", "--out", tmp_path / "out").exit_code == 0
    pages = [path.read_text() for path in (tmp_path / "out").rglob("*.html")]
    assert len(pages) == 7 and not any("alert(1)</script>" in page or "<img" in page for page in pages)
    assert sum("onerror=alert(1)&gt;" in page for page in pages) == 7


def edited(change: Callable[[dict[str, Any]], None]) -> Callable[[bytes], bytes]:
    """The file's bytes with a change of its last line, which is of kind report."""

    def edit(payload: bytes) -> bytes:
        *lines, last = lzma.decompress(payload).splitlines()
        said = json.loads(last)
        change(said)
        return b"\n".join([*lines, json.dumps(said).encode(), b""])

    return edit


def tie_of(said: dict[str, Any]) -> dict[str, Any]:
    return next(iter(said["comparison"]["ties"].values()))


DAMAGED: list[tuple[Callable[[bytes], bytes], str]] = [
    (lambda payload: payload[:-20], "a damaged xz file"),
    (lambda payload: payload[:200] + b"xxxx" + payload[204:], "a damaged xz file"),
    (lambda payload: b"", "no score records in it"),
    (lambda payload: b"[]\n", "row 1"),
    (edited(lambda said: tie_of(said).update(leader="r-0")), "'r-0' is no row of this leaderboard"),
    (
        edited(lambda said: said["comparison"]["dev"][0]["rows"].append("r-0")),
        "'r-0' is no row of this leaderboard",
    ),
    (edited(lambda said: tie_of(said).update(group="<b>")), "group"),
    (edited(lambda said: tie_of(said)["difference"].update(ahead=2)), "ahead"),
    (edited(lambda said: said["comparison"]["dev"][0]["alike"].append([0, 99])), "expected positions of 5 rows"),
    (edited(lambda said: said.update(schema_version=2)), "report.schema_version"),
    (edited(lambda said: said.update(more=1)), "report.more"),
]


@pytest.mark.slow
def test_a_damaged_file_is_refused(make_run: Callable[..., Path], tmp_path: Path) -> None:
    report(make_run(), "--out", tmp_path / "first")
    whole, file = (tmp_path / "first" / "records.jsonl.xz").read_bytes(), tmp_path / "file.jsonl.xz"
    for edit, expected in DAMAGED:
        file.write_bytes(edit(whole))
        refused = report(file, "--out", tmp_path / "out")
        assert refused.exit_code == 2 and expected in refused.stderr and "file.jsonl.xz" in refused.stderr
        assert not (tmp_path / "out").exists()


def test_a_source_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such path; expected a run's folder, a file of records"):
        read_study([tmp_path / "absent.jsonl.xz"])


@pytest.mark.slow
def test_a_committed_study_is_built_again(tmp_path: Path) -> None:
    file = ROOT / "results" / "records" / "proof-static-one.jsonl.xz"
    assert report(file, "--out", tmp_path / "out").exit_code == 0
    study = read_study([file])
    board = leaderboard(study.records)
    assert study.report is not None and study.report.comparison.is_of(board)
    ties = study.report.comparison.ties
    with (tmp_path / "out" / "leaderboard.csv").open(newline="") as written:
        assert sum(row["tie_group"] != "" for row in csv.DictReader(written)) == len(ties) == 15
    tested = {row.anchor: row.test.value or 0.0 for row in board.rows}
    for anchor, tie in ties.items():
        assert tie.difference.value == pytest.approx(tested[anchor] - tested[tie.leader], abs=1e-6)
        assert (tie.difference.low <= 0 <= tie.difference.high) and (anchor != tie.leader or tie.difference.value == 0)


def test_the_page_has_the_rows_for_pandas_and_duckdb(make_run: Callable[..., Path], tmp_path: Path) -> None:
    page = tmp_path / "out" / "index.html"
    assert report(make_run(), "--out", page.parent, "--title", "A study").exit_code == 0
    text = page.read_text()
    shown = html.unescape(text).split('Read the rows in DuckDB"><code>')[1].split("</code>")[0]
    rows = duckdb.sql(shown.replace("index.html", str(page))).df()
    lines = re.split("</?code>", html.unescape(text).split('Read the rows in pandas">')[1])[1].splitlines()
    frame = eval(lines[1].replace("index.html", str(page)), {"pandas": pd, "io": io})  # the line that the page shows
    assert list(rows.name) == list(frame.name) and set(rows.name) == {"teacher", "good", "similar", "worse", "good too"}
    assert report(tmp_path / "lost", "--out", page.parent).exit_code == 2
