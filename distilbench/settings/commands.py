"""Settings of all commands but `sweep`."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from distilbench.choices import EVERY_TASK, FAISS_KINDS, Backend, EvaluatedBackend
from distilbench.errors import InputError
from distilbench.settings.option import ARGUMENT, COMMAS, Names, Settings, option
from distilbench.settings.place import ClusterSettings, GrowingClusterSettings, RunPlaceSettings
from distilbench.settings.reading import DATA, ENCODERS, DataSettings, ReadingSettings, Tasks, tasks_option
from distilbench.settings.run import RESULTS, Codes, CodeSettings, RunSettings, SpaceSettings

if TYPE_CHECKING:
    from distilbench.data.vector_file import VectorFile
    from distilbench.encoders.encoder import EncoderSpec
    from distilbench.evaluation.indexes import IndexSpec


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
    workers: int | None = option("Trials at once; default: as many.", None, ge=1)
    price: float | None = option("Dollars that an hour of the cluster costs.", None, ge=0)
    json_file: Path | None = option("Write the plan to this file too.", None, named="json")


class CompareSettings(RunSettings):
    """Settings of `compare`."""

    file: tuple[Path, ...] = option("Files of configurations, such as search_spaces/papers/hpd.yaml.", panel=ARGUMENT)
    row: tuple[str, ...] = option("Only the row of this name; may be repeated.", ())
    seeds: int = option("Seeds for each row: the seed, the next one, ...", 3, ge=1)
    steps: int | None = option("Optimiser steps of one training at most.", None, ge=1)
    teacher: str = option("As for sweep; default: the one that the rows name, else all-MiniLM-L6-v2.", "")
    student: str = option("As for sweep, for all rows; default: the one that each row names, else auto.", "")


class EvaluateSettings(DataSettings, ReadingSettings, ClusterSettings, RunPlaceSettings, CodeSettings):
    """Settings of `evaluate`."""

    model: tuple[str, ...] = option(
        "Encoders: sentence-transformers or Hugging Face folders, hub ids, packaged names.", panel=ARGUMENT
    )
    teacher: str | None = option(
        "A model that is scored too, and that retention and differences are relative to.", None
    )
    backend: EvaluatedBackend = option(  # type: ignore[assignment]
        "What runs the encoders: torch, bf16 (torch in bfloat16, on CPUs that have it), or int8 (ONNX Runtime with int8 "
        "weights; the teacher stays in float32).",
        "torch",
        panel=ENCODERS,
    )
    tasks: Tasks = tasks_option(EVERY_TASK)
    dims: Annotated[tuple[Annotated[int, Field(ge=1)], ...], COMMAS] = option(
        "Score also the first so many dimensions, with commas between: 256,128,64.",
        (),
        expected="numbers of dimensions, such as 256,128,64",
    )
    quantise: Codes = option(
        "Score also in these codes: int8, int4, binary, or one of FAISS's with its bytes (opq16, itq16, tq2-64, "
        "rabitq1-40, eden2-72, rq16, ...); none leaves out also those that are saved with a model.",
        (),
    )
    indexes: Names = option(
        f"FAISS indexes to measure: {', '.join(FAISS_KINDS)}, with commas between; ivf:1024:5 is nlist and nprobe. Those "
        "other than flat are measured on the largest test set alone.",
        FAISS_KINDS,
        panel=RESULTS,
    )
    cost: bool = option(
        "Measure each model's size and its latency on one thread of the CPU, unless that is left out.",
        True,
        panel=RESULTS,
    )

    def model_post_init(self, context: Any, /) -> None:
        """Check how indexes are written, before anything runs."""
        _ = self.index_specs

    @cached_property
    def index_specs(self) -> tuple[IndexSpec, ...]:
        """The indexes and their settings."""
        from distilbench.evaluation.indexes import parse_index

        return tuple(parse_index(part) for part in self.indexes)

    @cached_property
    def models(self) -> tuple[EncoderSpec, ...]:
        """The encoders, each once."""
        in_int8 = self.backend == "int8"
        return tuple(dict.fromkeys(replace(self.encoder(name), int8=in_int8) for name in self.model))

    @property
    def float_backend(self) -> Backend:
        """What runs the encoders whose weights are not in int8."""
        return "bf16" if self.backend == "bf16" else "torch"

    @cached_property
    def teacher_encoder(self) -> EncoderSpec | None:
        """The encoder that the others are compared with."""
        return self.encoder(self.teacher) if self.teacher else None


class IndexSettings(GrowingClusterSettings):
    """Settings of `index`: documents, student, code."""

    student: str = option("A student: the folder of an export, or any sentence-transformers folder.")
    documents: Path = option("Documents with ids: TSV, CSV, JSON lines or Parquet; or plain text, one a line.")
    out: Path = option("The new folder; an earlier index there is replaced.")
    index: str = option(
        "flat (every code is compared), ivf (lists; ivf:1024:5 is nlist and nprobe) or hnsw (a graph); or the file of a "
        "FAISS index of the documents, which is kept.",
        "flat",
        expected="flat, ivf, ivf:NLIST:NPROBE, hnsw or a file",
    )
    teacher_vectors: Path | None = option(
        "The documents' vectors by the student's teacher, instead of encoding them: NAME.parquet with the columns text and "
        "vector.",
        None,
    )
    code: str | None = option(
        "What vectors are stored as: float32, or a code that is saved with the student; default: its only one, else float32.",
        None,
    )
    id_column: str | None = option("The column of the ids; default: the first of doc_id, _id and id.", None, panel=DATA)
    text_column: str = option("The column of the texts.", "text", panel=DATA)

    def model_post_init(self, context: Any, /) -> None:
        """Check how the index is written, before anything runs."""
        super().model_post_init(context)
        _ = self.spec

    @cached_property
    def spec(self) -> IndexSpec | None:
        """The index to make, and its settings; None where a file is named."""
        from distilbench.evaluation.indexes import parse_index

        if not re.search(r"[./\\]", self.index):
            return parse_index(self.index, "--index")
        if self.code is not None:
            raise InputError(f"--code {self.code}: expected none with --index {self.index}, which is kept as it is")
        return None

    @cached_property
    def vector_file(self) -> VectorFile | None:
        """The file of `--teacher-vectors`."""
        from distilbench.data.vector_file import vector_file

        return vector_file(self.teacher_vectors, self.text_column) if self.teacher_vectors else None


class MethodsSettings(Settings):
    """The method whose hyper-parameters are listed."""

    method: str | None = option("A method, whose hyper-parameters are listed too.", None, panel=ARGUMENT)


class ReportSettings(Settings):
    """Settings of `report`."""

    run: tuple[str, ...] = option(
        "Run folders, files of records (NAME.jsonl.xz, NAME.jsonl), folders of reports, or URIs of these.",
        panel=ARGUMENT,
    )
    out: str = option("The report's folder, or a URI.")
    title: str | None = option("The page's title; default: that of the file of records, else the runs' names.", None)


class BudgetSettings(Settings):
    """The runs whose best student is chosen, and the limits."""

    run: tuple[str, ...] = option(
        "Run folders, such as runs/mcr2-demonstration-all-MiniLM-L6-v2, or URIs: s3://bucket/runs/NAME.", panel=ARGUMENT
    )
    size: int | None = option("Bytes per vector at most.", None, named="bytes", ge=1)
    latency: float | None = option(
        "Milliseconds to embed one sentence at most, where runs measured it, such as 0.05.", None, ge=0
    )
    dim: int | None = option("Dimensions at most.", None, ge=1)


class BestSettings(BudgetSettings):
    """Settings of `best`."""

    json_file: Path | None = option("Write the choice to this file too.", None, named="json")


class ExportSettings(BudgetSettings):
    """Settings of `export`: the best row within the limits, or a named one."""

    to: Path = option("The new folder; an earlier export there is replaced.")
    student: str | None = option(
        'Instead: this one, by its row\'s name (with its code: "HPD d=128, int8"), a record id, or an anchor of the page.',
        None,
    )
    seed: int | None = option("Of its trainings the one with this seed; default: the best on dev.", None, ge=0)
    onnx: bool = option("Also as an ONNX graph, from token ids to the vector.", False)

    def model_post_init(self, context: Any, /) -> None:
        """Check that a student is named in one way."""
        if self.student is not None and (self.size, self.latency, self.dim) != (None, None, None):
            raise InputError("--student: expected no --bytes, --latency or --dim with it")


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
