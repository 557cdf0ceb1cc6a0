"""Rates from files and from finished runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from planning_samples import given_rates

from distilbench.cluster.provenance import provenance
from distilbench.errors import InputError
from distilbench.planning.given_rates import read_rates
from distilbench.records import Rung, TrialRecord, append_records
from distilbench.stage_times import Took, keep, note_pool, read_timings
from distilbench.storage.arrays import save_array
from distilbench.storage.files import write_json

PARAMS = {
    "output_dim": 4,
    "lambda": 1.0,
    "clusters": 2,
    "batch_size": 32,
    "steps": 60,
    "distil_epochs": 1,
    "distil_batch_size": 10,
}


def test_a_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    rates = given_rates()
    write_json(tmp_path / "rates.json", rates.model_dump())
    assert read_rates(tmp_path / "rates.json") == rates


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not a file of rates"),
        ("[]", "not a file of rates"),
        ('{"device": "tpu"}', "not a file of rates"),
        ('{"schema_version": 2}', "not a file of rates (schema_version"),
        (given_rates().model_dump_json().replace('"encode_per_s":50.0', '"encode_per_s":-1.0'), "(encode_per_s: "),
        (given_rates().model_dump_json().replace('"worker_s"', '"warker_s"'), "(warker_s: "),
    ],
)
def test_a_file_that_is_none(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "rates.json").write_text(text)
    with pytest.raises(InputError) as error:
        read_rates(tmp_path / "rates.json")
    assert message in str(error.value) and str(error.value).startswith(f"--rates {tmp_path}/rates.json: ")
    assert str(error.value).endswith("expected one that `plan --measure` wrote, or runs/NAME")


def test_neither_file_nor_run(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nowhere: cannot be read"):
        read_rates(tmp_path / "nowhere")
    with pytest.raises(InputError, match="no finished trials there; expected runs/NAME"):
        read_rates(tmp_path)


def record(number: int, rungs: list[tuple[int, float]], method: str = "mcr2_distil") -> TrialRecord:
    return TrialRecord(
        run="r",
        number=number,
        state="COMPLETE",
        reason="",
        method=method,
        params=PARAMS,
        seed=0,
        dim=4,
        objective=1.0,
        rungs=[
            Rung(rung=i, step=step, objective=1.0, metrics={"rung_seconds": spent})
            for i, (step, spent) in enumerate(rungs, start=1)
        ],
        provenance=provenance(),
    )


@pytest.fixture(autouse=True)
def no_pools(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests of this process had pools for which no run was there."""
    monkeypatch.setattr("distilbench.stage_times._pools", [])


def made_run(folder: Path) -> Path:
    """A head's training of 60 steps of 0.1 s, a student's of 30 steps of 2 s, judged in 3 s."""
    write_json(folder / "config.json", {"budget.steps": 1000, "teacher": "tiny"})
    save_array(folder / "prepared" / "train.npy", np.arange(300))
    rungs = [(10, 10 * 0.1 + 3), (30, 20 * 0.1 + 3), (90, 30 * 0.1 + 30 * 2.0 + 3)]
    append_records(folder / "trials.jsonl", [record(n, rungs[: 1 + n % 3]) for n in range(6)])
    return folder


def test_steps_of_each_phase_and_judging_are_told_apart(tmp_path: Path) -> None:
    rates = read_rates(made_run(tmp_path))
    own = rates.training["mcr2_distil"]
    assert own.phases["compress"].step_s == pytest.approx(0.1) and own.phases["compress"].batch == 32
    assert own.phases["distil"].step_s == pytest.approx(2.0) and own.phases["distil"].batch == 10
    assert own.judge_s == pytest.approx(3.0)
    assert rates.encode_per_s is None and rates.row_s is None and own.embed_per_s is None, "of these nothing is known"
    assert rates.device == "cpu" and rates.teacher == "tiny"


def test_pools_and_stages(tmp_path: Path) -> None:
    made_run(tmp_path)
    # Two workers of 50 sentences a second, ready after 12 s.
    count = 2 * 512 * 5
    ends = 12 + count / 100
    note_pool(Took(stage="Teacher encoding", seconds=ends, count=count, workers=2, first_s=12 + 512 / 50))
    busy = sum(3 + 10 * 0.1 + (n % 3 > 0) * (3 + 2.0) + (n % 3 > 1) * (3 + 63.0) for n in range(6))
    keep(tmp_path, Took(stage="start", seconds=20), Took(stage="prepare", seconds=99, count=count))
    search = Took(stage="search", seconds=12 + (busy + 6 * 4) / 2, count=6, workers=2)  # the workers start first
    keep(tmp_path, search, Took(stage="confirm", seconds=12 + 4 + 9, workers=1), Took(stage="report", seconds=7))
    append_records(tmp_path / "confirmations.jsonl", [record(0, [(10, 4)])])
    rates = read_rates(tmp_path)
    assert rates.encode_per_s == pytest.approx(50) and rates.worker_s == pytest.approx(12)
    assert rates.start_s == 20 and rates.report_s == 7 and rates.side_by_side == 2
    own = rates.training["mcr2_distil"]
    assert own.begin_s == pytest.approx(4) and own.finish_s == pytest.approx(9 - 4)


def test_a_run_of_several_methods(tmp_path: Path) -> None:
    made_run(tmp_path / "one")
    made_run(tmp_path / "two")
    append_records(tmp_path / "two" / "trials.jsonl", [record(6, [(10, 1.0)])])
    assert set(read_rates(tmp_path).training) == {"mcr2_distil"}
    assert read_rates(tmp_path / "one").training["mcr2_distil"].judge_s == pytest.approx(3.0)


def test_timings_that_are_damaged_or_cannot_be_written(tmp_path: Path) -> None:
    took = Took(stage="search", seconds=1.5, count=3)
    keep(tmp_path, took)
    keep(tmp_path, took)
    first, _ = noted = read_timings(tmp_path)
    assert noted == [took.model_copy(update={"driver_mb": timing.driver_mb}) for timing in noted]
    assert first.driver_mb > 50, "this process has had at least that"
    (tmp_path / "timings.json").write_text('[{"stage": "conf')
    assert read_timings(tmp_path) == []
    keep(tmp_path, took)
    assert [timing.stage for timing in read_timings(tmp_path)] == ["search"]
    keep(tmp_path / "gone", took)
    assert not (tmp_path / "gone").exists(), "where the disk is away nothing is written into its mount point"
