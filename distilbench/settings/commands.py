"""Settings of the other commands: plan, prepare, compare, report, best, export, reproduce, status."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, ByteSize, TypeAdapter

from distilbench.errors import InputError
from distilbench.settings.option import ARGUMENT, Settings, option
from distilbench.settings.run import RunSettings, SpaceSettings

RUN = "such as runs/mcr2-demonstration-all-MiniLM-L6-v2, or {}: s3://bucket/runs/NAME"


class PrepareSettings(SpaceSettings):
    """Settings of `prepare`."""

    method: str | None = option("Prepare what a sweep of this method reads; default: what most of them do.", None)
    json_file: Path | None = option("Write what was prepared to this file too.", None, named="json")


class PlanSettings(Settings):
    """The finished sweep that a plan is made from, and what differs from it."""

    finished: str = option("A finished sweep's folder, or its URI, such as a small one of the same kind.", named="from")
    trials: int | None = option("Trials of the sweep that is planned; default: as many.", None, ge=1)
    steps: int | None = option("Optimiser steps of a trial at most; default: as many.", None, ge=1)
    sentences: int | None = option("Sentences to encode; default: as many.", None, ge=1)
    trials_at_once: int | None = option("Trials at once; default: as many.", None, ge=1)
    price: float | None = option("Dollars that an hour of the cluster costs.", None, ge=0)
    json_file: Path | None = option("Write the plan to this file too.", None, named="json")


class CompareSettings(RunSettings):
    """Settings of `compare`."""

    file: tuple[Path, ...] = option("Files of configurations, such as search_spaces/papers/hpd.yaml.", panel=ARGUMENT)
    row: tuple[str, ...] = option("Only the row of this name; may be repeated.", ())
    seeds: int = option("Seeds for each row: the seed, the next one, ...", 3, ge=1)
    steps: int | None = option("Optimiser steps of one training at most.", None, ge=1)
    teacher: str = option("As for sweep; default: the one that the rows name, else all-MiniLM-L6-v2.", "")
    student: str = option("As for sweep; default: the one that the rows name, else auto.", "")


class MethodsSettings(Settings):
    """The method whose hyper-parameters are listed."""

    method: str | None = option("A method, whose hyper-parameters are listed too.", None, panel=ARGUMENT)


class RunsSettings(Settings):
    """The runs that a command reads."""

    run: tuple[str, ...] = option(f"Run folders, {RUN.format('URIs')}.", panel=ARGUMENT)


class ReportSettings(Settings):
    """Settings of `report`."""

    run: tuple[str, ...] = option(
        "Run folders, files of records (NAME.jsonl.xz, NAME.jsonl), folders of reports, or URIs of these.",
        panel=ARGUMENT,
    )
    out: str = option("The report's folder, or a URI.")
    title: str | None = option("The page's title; default: that of the file of records, else the runs' names.", None)


def _milliseconds(value: Any) -> Any:
    """Milliseconds of a text such as 0.05ms, 0.05 or 50us."""
    written = (
        re.fullmatch(r"([\d.]+(?:e-?\d+)?)\s*(ms|us)?", value.strip(), re.ASCII) if isinstance(value, str) else None
    )
    return value if written is None else float(written[1]) / (1000 if written[2] == "us" else 1)


class BudgetSettings(RunsSettings):
    """Limits on a student's cost."""

    latency: Annotated[float | None, BeforeValidator(_milliseconds)] = option(
        "Milliseconds to embed one sentence at most, where runs measured it, such as 0.05ms.",
        None,
        ge=0,
        expected="milliseconds, such as 0.05ms or 0.05",
    )
    dim: int | None = option("Dimensions at most.", None, ge=1)


class BestSettings(BudgetSettings):
    """Within what the best student is named."""

    size: int | None = option("Bytes per vector at most.", None, named="bytes", ge=1)
    json_file: Path | None = option("Write the choice to this file too.", None, named="json")


def _bytes(value: Any) -> Any:
    """Bytes of a text such as 128B, 128, 1kB (1,000) or 1KiB (1,024)."""
    if not isinstance(value, str):
        return value
    written = re.fullmatch(r"([\d.]+)\s*((?:[km]i?)?b?)", value.strip(), re.ASCII | re.IGNORECASE)
    if written is None:
        raise ValueError("not a number of bytes")
    size = float(written[1]) * TypeAdapter(ByteSize).validate_python(f"1{written[2]}")
    if size < 1 or size != int(size):
        raise ValueError("a part of a byte")
    return int(size)


class ExportSettings(BudgetSettings):
    """Settings of `export`."""

    to: Path = option("The new folder; an earlier export there is replaced.")
    best_under: Annotated[int | None, BeforeValidator(_bytes)] = option(
        "Choose on dev within so many bytes per vector, such as 128B or 1kB.",
        None,
        expected="bytes per vector, such as 128B, 128 or 1kB",
    )
    student: str | None = option(
        'Instead: this one, by its row\'s name (with its code: "HPD d=128, int8"), a record id, or an anchor of the page.',
        None,
    )
    seed: int | None = option("Of its trainings the one with this seed; default: the best on dev.", None, ge=0)
    onnx: bool = option("Also as an ONNX graph, from token ids to the vector.", False)

    def model_post_init(self, context: Any, /) -> None:
        """Check that a student is named in one way."""
        if self.student is not None and (self.best_under, self.latency, self.dim) != (None, None, None):
            raise InputError("--student: expected no --best-under, --latency or --dim with it")


class ReproduceSettings(Settings):
    """Settings of `reproduce`."""

    run: Path = option("A run's folder.", panel=ARGUMENT)
    trial: int = option("The number of a trial, or of a comparison's training.", panel=ARGUMENT, ge=0)
    seed: int | None = option("Of the training that confirmed the trial with this seed; default: its own.", None, ge=0)
    tolerance: float = option("How far a metric may be from the recorded one.", 0.01, ge=0)
    threads: int = option("Of torch: the CPUs that a trial of the run had.", 1, ge=1)


class StatusSettings(Settings):
    """The run whose progress is told."""

    run: str = option("A run's folder, or one that holds several, or its URI.", panel=ARGUMENT)
    watch: bool = option("Again every 2 seconds, until it is done.", False)
