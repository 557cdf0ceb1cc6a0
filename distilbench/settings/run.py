"""Settings that every training has: its data, teacher, student, machines, and the codes that it is scored in."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from distilbench.choices import EVERY_TASK, SWEPT_TASKS, TaskKind
from distilbench.codes import CODE_PATTERN, CODES_TOLD
from distilbench.errors import InputError
from distilbench.records import Quantisation
from distilbench.selection import Selection
from distilbench.settings.option import COMMAS, Names, Settings, option
from distilbench.settings.place import RESOURCES, GrowingClusterSettings, RunPlaceSettings
from distilbench.settings.reading import (
    DATA,
    DEFAULT_STUDENT,
    DEFAULT_TEACHER,
    ENCODERS,
    MOST,
    DataSettings,
    ReadingSettings,
    Tasks,
    tasks_option,
)

if TYPE_CHECKING:
    from distilbench.data.folder import Limits
    from distilbench.data.text import Texts
    from distilbench.data.vector_file import GivenVectors
    from distilbench.encoders.encoder import EncoderSpec

SEARCH = "Search"
RESULTS = "Scores"
AUGMENTATION = "Augmentation"


def _codes(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if name != "none" and not re.fullmatch(CODE_PATTERN, name):
            raise InputError(f"--quantise {name}: expected {CODES_TOLD}; none leaves all codes out")
    return names


Codes = Annotated[tuple[str, ...], COMMAS, AfterValidator(_codes)]


class CodeSettings(Settings):
    """In what vectors are scored beside float32."""

    quantise: Codes = option(
        "Score every row also in these codes: int8, int4, binary, one of FAISS's with its bytes (opq16, itq16, tq2-64, "
        "rabitq1-40, eden2-72, rq16, ...), or none.",
        ("int8", "int4", "binary"),
        panel=RESULTS,
    )

    @property
    def quantisations(self) -> tuple[Quantisation, ...]:
        """The codes in which every row is scored too."""
        return tuple(code for code in self.quantise if code != "none")


def _measure(value: str | None) -> str | None:
    return None if value is None else str(Selection.parse(value))


class PreparationSettings(DataSettings, ReadingSettings, GrowingClusterSettings):
    """What students are trained on, and from which teacher and start."""

    text: tuple[str, ...] = option(
        "Sentences to train on: a file, folder or glob (TSV, CSV, JSON lines, Parquet, text), also of a URI, or hf:NAME; "
        "repeatable.",
        (),
    )
    text_column: str = option("The column of --text that holds the sentences.", "text", panel=DATA)
    max_sentences: int = option(
        "Unlabelled sentences of --data, and of --text, to train on at most; 0: all.", MOST, panel=DATA, ge=0
    )
    teacher: str = option("The teacher: an encoder's folder, hub id, or packaged name.", DEFAULT_TEACHER)
    student: str = option(
        "Where an encoder student starts: auto:N (the best N of the teacher's layers, ranked; auto: half of them), half, "
        "layers:0,2,4, teacher (all of them), a folder or hub id; auto:N@FOLDER and the like: layers of another encoder; "
        "static: no layers, a vector for each token; static@FOLDER: that static student, trained further; :corpus after the "
        "others: only the tokens of the training sentences; static:+10k: 10,000 of their words too.",
        DEFAULT_STUDENT,
    )
    cross_encoder: str | None = option(
        "For dse: a fine-tuned cross-encoder's folder; default: the teacher is fine-tuned on the task.",
        None,
        panel=ENCODERS,
    )
    augment: Names = option(
        "Changed copies of the training sentences: synonym, back-translation (by German; or @THERE+BACK, two "
        "MarianMT models), with commas between, or hpd (synonym, back-translation). For methods with `augmentation: true`.",
        (),
        panel=AUGMENTATION,
    )
    teacher_vectors: Path | None = option(
        "Instead of a teacher: vectors of texts, as NAME.parquet with the columns text and vector; encoder students start "
        "from a --student folder.",
        None,
        panel=ENCODERS,
    )
    seed: int = option("Fixes everything random.", 0, ge=0, le=2**32 - 1)
    tasks: Tasks = tasks_option(SWEPT_TASKS, RESULTS)
    select: Annotated[str | None, AfterValidator(_measure)] = option(
        "What students are selected by: sts, retrieval (nDCG@10; or mrr@10, recall@100, ...), "
        "fidelity (to the teacher, without labels), or a mix such as retrieval=0.7,sts=0.3; default: what the data has.",
        None,
    )

    @property
    def selection(self) -> Selection | None:
        """The requested selection measure; None: the data decide."""
        return None if self.select is None else Selection.parse(self.select)

    def scored_tasks(self, selection: Selection) -> tuple[TaskKind, ...]:
        """The kinds of sets that rows are scored on: those of `tasks`, and those that students are selected by."""
        return tuple(kind for kind in EVERY_TASK if kind in self.tasks or kind in selection.tasks)

    @property
    def sets_folder(self) -> Path | None:
        """The data folder; None where text alone is given, which has no sets to score on."""
        return self.data_folder if self.data or not self.texts.sources else None

    @property
    def limits(self) -> Limits:
        """How much of a data folder, and of other text, is read."""
        return replace(super().limits, sentences=self.max_sentences or None)

    @cached_property
    def texts(self) -> Texts:
        """The sources of text, fetched where they are URIs (else those of `--teacher-vectors`), and how to read them."""
        from distilbench.data.text import Texts
        from distilbench.storage.folder_copy import local_text

        sources = tuple(local_text(source) for source in self.text)
        if self.teacher_vectors is not None:
            sources = sources or (str(self.teacher_encoder.vector_file.path),)
        return Texts(sources, self.text_column)

    @cached_property
    def teacher_encoder(self) -> EncoderSpec:
        """The teacher and how it reads, or the file of its vectors."""
        if self.teacher_vectors is None:
            return self.encoder(self.teacher)
        from distilbench.encoders.encoder import EncoderSpec

        for name in ("teacher", "prompt"):
            if name in self.model_fields_set and getattr(self, name) != type(self).model_fields[name].default:
                raise InputError(f"--{name}: expected none with --teacher-vectors, which are taken as they are")
        spec = EncoderSpec(str(self.teacher_vectors.absolute()), max_tokens=self.max_tokens, vectors=self.text_column)
        _ = spec.vector_file
        return spec

    @cached_property
    def given(self) -> GivenVectors | None:
        """The teacher's vectors where they are given, checked and in the store."""
        if self.teacher_vectors is None:
            return None
        from distilbench.data.vector_file import given_vectors

        return given_vectors(self.teacher_encoder.vector_file, self.artifacts)

    def student_reading(self, student: str) -> EncoderSpec:
        """The encoder that a student is made of, and how it reads."""
        from distilbench.encoders.student import student_reading, student_source

        source = student_source(student, self.teacher_encoder)
        return student_reading(source, self.teacher_encoder, self.prompts) if self.teacher_encoder.by_role else source


class RunSettings(PreparationSettings, RunPlaceSettings, CodeSettings):
    """Settings that every training has."""

    faiss_baselines: Annotated[tuple[Annotated[int, Field(ge=1, le=4096)], ...], COMMAS] | None = option(
        "Bytes of a vector at which FAISS's own codes of the teacher are baselines, such as 8,16,32; default: those of the "
        "search space where it names bits or codebooks, else none.",
        None,
        panel=RESULTS,
        expected="numbers of bytes, such as 8,16,32",
    )
    cpus_per_trial: int | None = option("CPUs of a trial; default 1.", None, panel=RESOURCES, ge=1)
    gpus_per_trial: float | None = option(
        "Share of a GPU for a trial; default: as CPUs and the GPU's memory allow.", None, panel=RESOURCES, ge=0
    )


class SpaceSettings(PreparationSettings):
    """The search spaces."""

    space: Annotated[str | None, BeforeValidator(lambda value: None if value is None else str(value))] = option(
        "A search space: a file, a folder of METHOD.yaml, or one that comes along: small (minutes, the demonstration), real "
        "(ten minutes or more on two cores), cluster (hours on GPUs), front and others; default: search_spaces/METHOD.yaml "
        "of the working folder, else real with --data and small without.",
        None,
    )
