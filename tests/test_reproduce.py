"""`distilbench reproduce` on a run made by hand: two trials and a confirmation that were really trained."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from distilbench.cli import app
from distilbench.cluster.provenance import provenance
from distilbench.commands.reproduce import reproduce
from distilbench.methods import get_method
from distilbench.records import TrialRecord, append_records, read_records
from distilbench.trials.budget import Budget
from distilbench.trials.rung_training import RungTraining
from distilbench.trials.training_spec import TrainingSpec

MCR2 = {
    "output_dim": 8,
    "lambda": 1.0,
    "clusters": 4,
    "lr": 0.003,
    "batch_size": 16,
    "centre": False,
    "noise_kind": "factor",
}
BUDGET = Budget(trials=4, steps=18, rungs=3, eta=3, start=False)


def trained(run: Path, number: int, rungs: int, seed: int = 0, **params: Any) -> TrialRecord:
    """The record of a training up to so many rungs."""
    full = get_method("mcr2").params_type.model_validate({**MCR2, **params}).model_dump(mode="json", by_alias=True)
    folder = run.parent / f"training-{number}-{seed}"
    spec = TrainingSpec("mcr2", full, seed, BUDGET, run / "prepared", folder, folder / "log")
    training = RungTraining(spec, "cpu")
    while not training.done and len(training.rungs) < rungs:
        training.advance()
    state = "FAIL" if training.failed else "COMPLETE" if training.done else "PRUNED"
    return TrialRecord(
        run="r",
        number=number,
        state=state,  # type: ignore[arg-type]
        reason=training.failed or ("not among the best 1/3 at rung 2" if state == "PRUNED" else ""),
        method="mcr2",
        params=full,
        seed=seed,
        dim=8,
        objective=training.rungs[-1].objective if training.rungs else None,
        rungs=training.rungs,
        confirms=seed > 0,
        provenance=provenance(),
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, prepared_folder: Path) -> Path:
    run = tmp_path_factory.mktemp("reproduce") / "r"
    shutil.copytree(prepared_folder, run / "prepared")
    budget = BUDGET.model_dump(mode="json", exclude={"trials", "confirm"})
    config = {"corpus_fingerprint": "c", "method": "mcr2", "trials": 4, **{f"budget.{k}": v for k, v in budget.items()}}
    (run / "config.json").write_text(json.dumps(config))
    trials = [trained(run, 0, 3), trained(run, 1, 2), trained(run, 2, 3, **{"lambda": 1e39})]
    trials.append(trained(run, 3, 3, **{"lambda": 1e6, "lr": 0.03}))
    assert [t.state for t in trials] == ["COMPLETE", "PRUNED", "FAIL", "FAIL"]
    append_records(run / "trials.jsonl", trials)
    append_records(run / "confirmations.jsonl", [trained(run, 0, 3, seed=1)])
    return run


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "r"))


def command(run: Path, *arguments: object) -> Result:
    return CliRunner().invoke(app, ["reproduce", str(run), *map(str, arguments)], catch_exceptions=False)


def snapshot(run: Path) -> dict[Path, tuple[int, bytes]]:
    return {p: (p.stat().st_mtime_ns, p.read_bytes()) for p in run.rglob("*") if p.is_file()}


def change(run: Path, number: int, **changes: Any) -> None:
    """Write the records of the run again, one of them changed."""
    path = run / "trials.jsonl"
    records = [r for r in read_records(path) if isinstance(r, TrialRecord)]
    path.unlink()
    append_records(path, [r.model_copy(update=changes) if r.number == number else r for r in records])


@pytest.mark.parametrize(
    ("arguments", "rungs"), [((0,), 3), ((1,), 2), ((0, "--seed", 1), 3), ((0, "--seed", 0, "--tolerance", 0), 3)]
)
def test_a_recorded_training_comes_out_the_same_as_far_as_it_went(
    run: Path, arguments: tuple[object, ...], rungs: int
) -> None:
    before = snapshot(run)
    done = command(run, *arguments)
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    shape = {"effective_rank", "variance", "relative_variance"}
    wanted = {"objective", "dev_score", "dev_pca_score", "dev_quality", "loss", *shape}
    table = [line.split() for line in lines[2:-1]]
    assert {(int(rung), int(step), metric) for rung, step, metric, *_ in table} == {
        (n, step, metric) for n, step in zip(range(1, rungs + 1), (2, 6, 18), strict=False) for metric in wanted
    }
    assert all(recorded == again and difference == "0" for *_, recorded, again, difference in table)
    assert lines[-1].startswith("reproduced: ")
    assert ("confirmation of trial 0" in lines[0]) == ("--seed" in arguments and 1 in arguments)
    assert snapshot(run) == before


def test_a_failure_is_reproduced_with_its_reason(run: Path) -> None:
    done = command(run, 2)
    assert done.exit_code == 0 and done.output.count("loss -inf, gradient norm nan at step 0") == 2
    collapsed = reproduce(run, 3)
    assert collapsed.reason.startswith("collapsed: the unit vectors") and collapsed.show(0, Console(quiet=True))
    assert [r.step for r in collapsed.rungs] == [r.step for r in collapsed.record.rungs] != []
    change(run, 2, reason="something else")
    done = command(run, 2)
    assert done.exit_code == 1 and "not reproduced" in done.output and "it did not fail alike" in done.output
    change(run, 0, state="FAIL", reason="its worker died")
    assert command(run, 0).exit_code == 1


def test_another_value_is_told_and_status_1(run: Path) -> None:
    record = next(r for r in read_records(run / "trials.jsonl") if isinstance(r, TrialRecord))
    first = record.rungs[0]
    metrics = {**first.metrics, "dev_score": (first.metrics["dev_score"] or 0) + 0.5}
    change(run, 0, rungs=[first.model_copy(update={"metrics": metrics}), *record.rungs[1:]])
    done = command(run, 0)
    assert done.exit_code == 1
    [marked] = [line for line in done.output.splitlines() if line.rstrip().endswith("!")]
    assert marked.split()[2] == "dev_score" and float(marked.split()[-2]) == pytest.approx(-0.5)
    assert "not reproduced: 1 of 24 values differ by more than 0.01" in done.output
    assert command(run, 0, "--tolerance", 0.6).exit_code == 0


def refused(run: Path, *arguments: object) -> str:
    done = command(run, *arguments)
    assert done.exit_code == 2 and done.stdout == "", done.output
    return done.stderr


def test_bad_input_has_one_clear_line(run: Path, tmp_path: Path) -> None:
    assert "no such folder; expected that of a run" in refused(tmp_path / "nowhere", 0)
    (tmp_path / "empty").mkdir()
    assert "no run's config.json in it; expected the folder of a run" in refused(tmp_path / "empty", 0)
    assert "no record of a trial 4; 4 have ended, 0 to 3" in refused(run, 4)
    assert "no record of trial 0 with seed 7; it was trained with seed 0, 1" in refused(run, 0, "--seed", 7)
    assert "no record of trial 1 with seed 1; it was trained with seed 0" in refused(run, 1, "--seed", 1)
    group = tmp_path / "group"
    shutil.copytree(run, group / "mcr2")
    (group / "mcr2" / "scores.jsonl").touch()
    assert "expected one of the runs in it: mcr2" in refused(group, 0)
    kept = json.loads((run / "prepared" / "prepared.json").read_text())
    (run / "prepared" / "prepared.json").write_text(json.dumps({**kept, "pca": str(tmp_path / "gone")}))
    assert f"{tmp_path / 'gone'}: the trials were trained on it, and it is gone" in refused(run, 0)
    (run / "prepared" / "prepared.json").unlink()
    assert "prepared.json: not there" in refused(run, 0)
    (run / "trials.jsonl").unlink()
    (run / "confirmations.jsonl").unlink()
    assert "no record of a trial 0; none has ended" in refused(run, 0)


def test_a_training_of_a_comparison_by_its_number(run: Path) -> None:
    (run / "config.json").write_text(json.dumps({"corpus_fingerprint": "c", "rows": ["a"], "steps": 18}))
    (run / "confirmations.jsonl").unlink()
    assert command(run, 0).exit_code == 0
    assert "no record of trial 0 with seed 1" in refused(run, 0, "--seed", 1)
