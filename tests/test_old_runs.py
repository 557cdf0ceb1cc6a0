"""Runs of an earlier version: a record, or a row of a paper, without a newer parameter means what it meant then.

tests/fixtures/run-be7c367.tar.xz is tiny sweeps and a comparison by commit be7c367 (tests/fixtures/make_old_run.py made it),
trained on its teacher's layers 1 and 3: `half` of four layers, as that commit chose them.
"""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from old_run import FIXTURE
from typer.testing import CliRunner

from distilbench.cli import app
from distilbench.commands.configurations import complete, read_configurations
from distilbench.commands.reproduce import reproduce
from distilbench.encoders.encoder import EncoderSpec
from distilbench.evaluation.sts import spearman
from distilbench.methods import get_method
from distilbench.records import ScoreRecord, TrialRecord, read_records

PAPERS = sorted((Path(__file__).parents[1] / "search_spaces" / "papers").glob("*.yaml"))
SPEARMAN = 0.05
"""Two neighbours of 40 pairs that change places are 0.02; other CPUs differ in the last digits of a cosine."""
TOLERANCE = 1e-3

OLD: dict[str, Any] = {
    "bits": None,
    "group": 1,
    "student": None,
    "neighbours": 0.0,
    "head_steps": 0,
    "neighbour_temperature": 0.05,
    "similarities": 0.0,
    "dropout": True,
    "freeze_embeddings": False,
    "decay_all": True,
    "clip": 1.0,
    "schedule": "linear",
    "projection_start": "random",
    "loss": "squared",
    "nested": False,
    "norm": "raw",
    "centre": False,
    "noise_kind": "factor",
    "normaliser": False,
    "directions": "teacher",
    "map_start": "random",
    "stage2_rows": "anchors",
    "stage2_states": "projected",
    "export_map": False,
    "collapse": "absolute",
    "max_negative_share": 0.0,
    "negatives_by": "teacher",
    "judged": False,
}
"""What be7c367 did where a later version has a parameter: name to value."""
OLD_OF = {"hpd": {"start_sentences": 2000}, "crd": {"hard_negatives": 1}}
"""The same of one method."""
NO_EFFECT = {
    "widths",
    "start_sentences",
    "sif",
    "table",
    "head_lr",
    "head_batch_size",
    "head_sentences",
    "head_temperature",
}
"""Later parameters that do nothing in the other methods while those above have their old values."""


def trainings() -> list[Any]:
    """Each recorded training of the fixture: its run's folder, number and seed."""
    found = []
    for file in sorted(FIXTURE.glob("runs/**/*.jsonl")):
        for r in read_records(file):
            if isinstance(r, TrialRecord):
                name = f"{r.run}-{r.number}-seed{r.seed}"
                found.append(
                    pytest.param(file.parent.relative_to(FIXTURE), r.number, r.seed if r.confirms else None, id=name)
                )
    return found


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fixture where a test may write, with its own path in place of @FIXTURE@."""
    folder = Path(shutil.copytree(FIXTURE, tmp_path_factory.mktemp("old") / "run"))
    for path in folder.rglob("*.json*"):
        path.write_text(path.read_text().replace("@FIXTURE@", str(folder)))
    return folder


def command(*arguments: object) -> str:
    done = CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def scores(run: Path) -> dict[str, ScoreRecord]:
    """The rows of a run and of those in it, by their ids."""
    files = run.rglob("scores.jsonl")
    return {r.record_id: r for file in files for r in read_records(file) if isinstance(r, ScoreRecord)}


def recorded(record: ScoreRecord, split: str) -> float:
    """Its STS-B Spearman."""
    [value] = [
        s.value for s in record.scores if (s.set, s.split, s.metric, s.variant) == ("STSB", split, "spearman", "all")
    ]
    return value


@pytest.mark.parametrize(("run", "number", "seed"), trainings())
def test_a_training_comes_out_as_it_was_recorded(old: Path, run: Path, number: int, seed: int | None) -> None:
    again = reproduce(old / run, number, seed)
    assert again.same(SPEARMAN), [d for d in again.differences() if abs(d.amount) > SPEARMAN]
    ranked = ("objective", "dev_score", "dev_pca_score", "dev_quality")
    assert not [d for d in again.differences() if d.metric not in ranked and abs(d.amount) > TOLERANCE]


def test_the_command_says_so(old: Path) -> None:
    assert "\nreproduced: " in command("reproduce", old / "runs" / "swept" / "hpd", 1, "--tolerance", SPEARMAN)


@pytest.mark.parametrize(("run", "budget"), [("swept", ()), ("swept/hpd", ("--bytes", 8)), ("compared", ())])
def test_best_has_the_recorded_scores(old: Path, tmp_path: Path, run: str, budget: tuple[object, ...]) -> None:
    command("best", old / "runs" / run, *budget, "--json", tmp_path / "best.json")
    chosen = json.loads((tmp_path / "best.json").read_text())["student"]
    rows = scores(old / "runs" / run)
    assert len(chosen["seeds"]) >= 1
    for seed in chosen["seeds"]:
        record = rows[seed["record_id"]]
        assert record.bytes_per_vector == chosen["bytes_per_vector"] <= (budget or (0, 1000))[1]
        assert seed["test_average"] == pytest.approx(recorded(record, "test"))
        assert seed["dev"] == pytest.approx(recorded(record, "dev"))


@pytest.mark.parametrize(("run", "dim"), [("hpd", 8), ("hpd", 4), ("mcr2", 8), ("mse", 16)])
def test_an_export_scores_what_is_recorded(old: Path, tmp_path: Path, run: str, dim: int) -> None:
    from sentence_transformers import SentenceTransformer

    folder = old / "runs" / "swept" / run
    rows = [r for r in scores(folder).values() if (r.role, r.dim, r.quantisation) == ("student", dim, "float32")]
    assert [r.seed for r in rows] == [0, 1]
    command("export", folder, "--student", rows[0].record_id, "--seed", 1, "--to", tmp_path / "out")
    assert json.loads((tmp_path / "out" / "record.json").read_text())["record_id"] == rows[1].record_id
    model = SentenceTransformer(str(tmp_path / "out"), device="cpu")
    for split in ("dev", "test"):
        with (old / "data" / "sts" / f"STSB.{split}.tsv").open() as file:
            pairs = list(csv.DictReader(file, delimiter="\t"))
        one, two = (model.encode([p[f"sentence{i}"] for p in pairs], normalize_embeddings=True) for i in (1, 2))
        value = spearman((one * two).sum(axis=1), np.array([float(p["score"]) for p in pairs]))
        assert value == pytest.approx(recorded(rows[1], split), abs=SPEARMAN)


def test_a_report_has_every_row(old: Path, tmp_path: Path) -> None:
    command("report", old / "runs" / "swept", old / "runs" / "compared", "--out", tmp_path / "report")
    students = {key: r for key, r in scores(old / "runs").items() if r.role == "student"}
    shown = {
        r.record_id: r for r in read_records(tmp_path / "report" / "records.jsonl.gz") if isinstance(r, ScoreRecord)
    }
    assert {key: r for key, r in shown.items() if r.role == "student"} == students
    rows = json.loads((tmp_path / "report" / "leaderboard.json").read_text())
    for name, run in (("HPD d=8", "swept/hpd"), ("regression", "compared")):
        [row] = [r for r in rows if (r["name"], r["code"]) == (name, "float32")]
        of_row = [r for r in students.values() if (r.run, r.dim, r.quantisation) == (run, 8, "float32")]
        values = [recorded(r, "test") for r in of_row if r.configuration in ("", name)]
        assert len(values) == 2 and row["sts_STSB"] == pytest.approx(sum(values) / 2)
    assert (tmp_path / "report" / "index.html").stat().st_size > 10_000


def test_a_parameter_that_is_not_recorded_has_its_old_value() -> None:
    trials = [
        r for file in FIXTURE.glob("runs/**/trials.jsonl") for r in read_records(file) if isinstance(r, TrialRecord)
    ]
    for record in trials:
        params = (
            get_method(record.method).params_type.model_validate(record.params).model_dump(mode="json", by_alias=True)
        )
        assert {name: params[name] for name in record.params} == record.params
        old = OLD | OLD_OF.get(record.method, {})
        later = params.keys() - record.params.keys() - (NO_EFFECT - old.keys())
        assert later <= old.keys(), f"{record.method}: say in OLD what be7c367 did: {sorted(later - old.keys())}"
        assert {name: params[name] for name in later} == {name: old[name] for name in later}


@pytest.mark.parametrize("path", PAPERS, ids=lambda path: path.stem)
def test_a_papers_row_without_a_later_parameter_has_its_old_value(path: Path) -> None:
    teacher = EncoderSpec(str(FIXTURE / "teacher"))
    for file, row in read_configurations([path], ()):
        completed = complete(file, row, teacher, "half").params
        silent = OLD.keys() & completed.keys() - row.params.keys()
        assert "clip" in silent | row.params.keys()
        assert {name: completed[name] for name in silent} == {name: OLD[name] for name in silent}, row.name
