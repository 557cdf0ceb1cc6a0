"""Records: what is appended comes back, a torn line is cut, a bad one is named."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from distilbench.errors import InputError
from distilbench.records import (
    IndexCost,
    Provenance,
    Rung,
    Score,
    ScoreRecord,
    TrialRecord,
    append_records,
    read_records,
)

PROVENANCE = Provenance(created_at="2026-01-01T00:00:00+00:00", commit="abc+changes", versions={}, device="CPU", cpus=2)


def trial(number: int, **changes: Any) -> TrialRecord:
    values: dict[str, Any] = {
        "run": "r",
        "number": number,
        "state": "COMPLETE",
        "reason": "",
        "method": "mcr2",
        "params": {"lambda": 2000.0, "head": "elu", "decay": True, "clusters": 16, "betas": [0.9, 0.99]},
        "seed": 0,
        "dim": 32,
        "objective": -1.25,
        "rungs": [Rung(rung=1, step=50, objective=0.1 + 0.2, metrics={"dev_score": 81.3, "loss": None})],
        "provenance": PROVENANCE,
    }
    return TrialRecord(**{**values, **changes})


def score() -> ScoreRecord:
    return ScoreRecord(
        record_id="1",
        run="r",
        label="MCR2 32 – “best”\nsecond line",  # JSON keeps any text on one line
        role="student",
        method="mcr2",
        dim=32,
        bytes_per_vector=128,
        teacher="t",
        start="teacher (frozen)",
        parameters=5,
        trial=3,
        hyperparameters={"lr": 1e-3},
        seed=0,
        corpus="c",
        corpus_fingerprint="f",
        demonstration=False,
        scores=[Score(task="sts", set="STSB", split="dev", metric="spearman", variant="all", value=80.0, n=1500)],
        indexes=[
            IndexCost(
                set="quora",
                split="dev",
                kind="flat",
                nlist=None,
                nprobe=None,
                documents=9,
                queries=3,
                build_s=0.1,
                bytes=100,
                ms_per_1000_queries=2.5,
                threads=1,
                mrr10=50.0,
                recall100=100.0,
                overlap10_with_flat=100.0,
            )
        ],
        model="models/32",
        provenance=PROVENANCE,
    )


def test_records_come_back_as_they_were_in_their_order(tmp_path: Path) -> None:
    path = tmp_path / "new" / "records.jsonl"
    records = [trial(0), score(), trial(1, state="FAIL", reason="loss nan", objective=None, rungs=[])]
    append_records(path, records[:2])
    append_records(path, [])
    append_records(path, records[2:])
    assert list(read_records(path)) == records
    assert len(path.read_text().splitlines()) == 3


@pytest.mark.parametrize("kept", [1, 30, -1])  # bytes of the last line that the killed writer left, -1: all but "\n"
def test_a_torn_last_line_is_skipped_and_then_cut(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "records.jsonl"
    append_records(path, [trial(0), trial(1)])
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    path.write_bytes(whole[:first] + whole[first:][:kept])
    assert list(read_records(path)) == [trial(0)]
    append_records(path, [trial(1)])
    assert path.read_bytes() == whole


def change(**changes: Any) -> Callable[[dict[str, Any]], None]:
    return lambda line: line.update(changes)


def without(name: str) -> Callable[[dict[str, Any]], None]:
    return lambda line: line.pop(name)  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (change(seed="zero"), r"trial\.seed: .*integer.*\(got 'zero'\)"),
        (without("dim"), r"trial\.dim: Field required"),
        (change(state="DONE"), r"trial\.state: .*'COMPLETE', 'PRUNED' or 'FAIL' \(got 'DONE'\)"),
        (change(surprise=1), r"trial\.surprise: Extra inputs are not permitted"),
        (change(rungs=[{"rung": 1}]), r"trial\.rungs\.0\.step: Field required"),
        # A file of a later version must not be read as if it were of this one.
        (change(schema_version=2), r"trial\.schema_version: Input should be 1 \(got 2\)"),
        (change(kind="vote"), r"'trial', 'score'"),
        (without("kind"), r"'kind'"),
    ],
)
def test_a_bad_record_names_file_row_and_field(
    tmp_path: Path, spoil: Callable[[dict[str, Any]], None], message: str
) -> None:
    path = tmp_path / "trials.jsonl"
    line = json.loads(trial(2).model_dump_json())
    spoil(line)
    append_records(path, [trial(0), trial(1)])
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")
    append_records(path, [trial(3)])
    reader = read_records(path)
    assert [next(reader), next(reader)] == [trial(0), trial(1)]
    with pytest.raises(InputError, match=rf"trials\.jsonl, row 3: .*{message}"):
        next(reader)


@pytest.mark.parametrize("line", [b"not json\n", b"\n", b"[]\n", b"\xff\n", b"half a line\rand the rest\n"])
def test_a_line_that_is_no_json_object_names_file_and_row(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "trials.jsonl"
    append_records(path, [trial(0)])
    with path.open("ab") as file:
        file.write(line)
    append_records(path, [trial(1)])
    with pytest.raises(InputError, match=r"trials\.jsonl, row 2: "):
        list(read_records(path))


@pytest.mark.parametrize("value", [math.nan, math.inf, 0.0, -1.0])
def test_a_latency_that_is_no_time_is_never_recorded(value: float) -> None:
    with pytest.raises(ValidationError):
        ScoreRecord.model_validate({**score().model_dump(), "latency_ms": value})
