"""Records: what a number on the leaderboard can be traced to. Append-only JSON lines with a schema version."""

from __future__ import annotations

import lzma
import math
import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from distilbench.codes import CODE_PATTERN, CompetitionKey, competition_key
from distilbench.errors import InputError, invalid
from distilbench.selection import TITLES
from distilbench.storage.files import FULL, disk_full, fingerprint


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Provenance(_Record):
    """Where a number comes from: code, data, machine."""

    created_at: str
    commit: str
    """Git commit of the working copy, "+changes" appended when it had uncommitted ones, "" outside a checkout."""
    versions: dict[str, str]
    device: str
    cpus: int


class Rung(_Record):
    """One report of a trial: dev metrics after `step` optimiser steps."""

    rung: int
    step: int
    objective: float | None
    metrics: dict[str, float | None]
    eligible: bool | None = None
    """Whether the student was in its final form, so that the rung can be the training's result; None in records of
    before, where the last rung is the result."""

    @property
    def dev(self) -> float | None:
        """The dev score x 100; None where the student was judged by a task of its method alone."""
        return self.metrics.get("dev_score")

    @property
    def dev_pca(self) -> float | None:
        """The dev score of PCA with as many dimensions, or as many bytes where the student is trained for a code."""
        return self.metrics.get("dev_pca_score")

    @property
    def widths(self) -> list[int]:
        """The nested widths at which the student is judged; [] where it has one."""
        names = (re.fullmatch(r"dev_score_(\d+)", name) for name in self.metrics)
        return [int(name[1]) for name in names if name]

    def objective_at(self, width: int) -> float | None:
        """The objective of the first `width` numbers alone, where the student is judged at several widths."""
        dev, pca = self.metrics.get(f"dev_score_{width}"), self.metrics.get(f"dev_pca_score_{width}")
        return self.objective if dev is None or pca is None else dev - pca


def result_rung(rungs: Sequence[Rung]) -> Rung | None:
    """The rung whose student is a training's result: the eligible one with the highest objective (the earlier of equals).

    Where none is eligible it is the last one, and None where there is none.
    """
    eligible = [rung for rung in rungs if rung.eligible and rung.objective is not None]
    return max(eligible, key=lambda rung: (rung.objective, -rung.rung), default=rungs[-1] if rungs else None)


class TrialRecord(_Record):
    """One finished trial of the study. `objective` is that of its result, None when it is not finite."""

    kind: Literal["trial"] = "trial"
    schema_version: Literal[1] = 1
    run: str
    number: int
    state: Literal["COMPLETE", "PRUNED", "FAIL"]
    reason: str
    method: str
    params: dict[str, Any]
    seed: int
    dim: int
    objective: float | None
    rungs: list[Rung]
    values: dict[str, float] = {}
    """The value of each objective, in a sweep with several ("quality", "bytes", "latency"), at the last rung."""
    confirms: bool = False
    """Whether it repeats the settings of trial `number` with another seed, to confirm it."""
    select: str = "sts"
    """What students of the run are selected by (`selection.Selection`)."""
    provenance: Provenance

    @property
    def result(self) -> Rung | None:
        """The rung whose student is the trial's result."""
        return result_rung(self.rungs)

    @property
    def dev(self) -> float | None:
        """The dev score x 100 of the trial's result."""
        return None if self.result is None else self.result.dev

    @property
    def seconds(self) -> float:
        """What the training took, at all of its rungs."""
        return math.fsum(rung.metrics.get("rung_seconds") or 0.0 for rung in self.rungs)

    def objective_at(self, width: int) -> float | None:
        """The objective of the result's first `width` numbers alone, where the student is judged at several widths."""
        return self.objective if self.result is None else self.result.objective_at(width)

    @property
    def group(self) -> CompetitionKey:
        """What the trial competes within (`codes.competition_key`)."""
        return competition_key(self.params, self.dim)

    @property
    def is_candidate(self) -> bool:
        """Whether the trial has a student to choose: complete, or stopped when the student had its final form."""
        stopped = self.state == "PRUNED" and self.result is not None and bool(self.result.eligible)
        return self.state == "COMPLETE" or stopped


def _known_metric(name: str) -> str:
    if name not in TITLES:
        raise ValueError(f"expected one of {', '.join(TITLES)}")
    return name


Metric = Annotated[str, AfterValidator(_known_metric)]
"""The name of a metric, one of `selection.TITLES`."""
Task = Literal[
    "sts", "sts-tokenised", "classification", "retrieval", "asymmetric", "pairs", "pair-probe", "fidelity", "selection"
]


class Score(_Record):
    """One quality figure, x 100. `set` "STS12" or "quora", `variant` "all" | "wmean" | "mean" | a subset's name.

    Task "pairs" is a pair task scored by the encoder's own pair head (DSE), or by a cross-encoder; "pair-probe" is one by a
    regression on the frozen embeddings, "classification" a set of sentences by SentEval's protocol. "sts-tokenised" is in
    older records, an STS set tokenised and lower-cased. "asymmetric", in older records too, is retrieval in documents that
    another encoder embedded, which is a row of its own now (`ScoreRecord.documents`).
    "fidelity" is how near held-out sentences are to the teacher's, "selection" what students are selected by: a part of it
    (`set` "retrieval"), or a whole mix (`set` "retrieval=0.7,sts=0.3"), on the small sets that every rung is judged on.
    """

    task: Task
    set: str
    split: Literal["dev", "test"]
    metric: Metric
    variant: str
    value: float = Field(allow_inf_nan=False)
    n: int
    low: float | None = None
    """With `high`: the 95 % bootstrap interval over the set's items (`evaluation.bootstrap`); None where there is none."""
    high: float | None = None


IndexKind = Annotated[str, Field(pattern=rf"^(flat|ivf|hnsw|{CODE_PATTERN})$")]
"""FAISS's own kinds; what `Quantisation` names is of codes calibrated on other text (`evaluation.quantisation`)."""


class IndexCost(_Record):
    """One FAISS index over one retrieval set, measured on `threads` threads with `batch` queries at a time (None: all)."""

    set: str
    split: Literal["dev", "test"]
    kind: IndexKind
    nlist: int | None
    nprobe: int | None
    documents: int
    queries: int
    build_s: float
    bytes: int
    ms_per_1000_queries: float
    threads: int
    batch: int | None = None
    device: Literal["cpu", "cuda"] = "cpu"
    setting: str = ""
    """What else the index depends on, such as "m=32, efSearch=64"."""
    mrr10: float
    """x 100, as `recall100`."""
    recall100: float
    overlap10_with_flat: float
    """Mean share (x 100) of the exact index's first 10 documents that this index also returns."""


class EncoderCost(_Record):
    """What it takes to keep an encoder and to embed with it (`evaluation.cost`), on one thread of the CPU."""

    parameters_without_embeddings: int
    bytes_on_disk: int
    sentences_per_second_1: float
    """One sentence at a time, tokenisation included."""
    sentences_per_second_32: float
    p50_ms: float
    """Latency of one sentence."""
    p95_ms: float
    threads: int
    device: str
    timed_1: int
    """Sentences that were timed, one at a time and in batches of 32."""
    timed_32: int
    spread: float | None = None
    """How well the times are known: half of their 95 % interval, as a share of them."""
    tokenising: float | None = None
    """The share of the time in batches that goes to the tokenizer."""

    @property
    def latency_ms(self) -> float:
        """ms to embed one sentence, in batches of 32."""
        return 1000 / self.sentences_per_second_32


ON_DEMONSTRATION = "on the demonstration corpus, no benchmark"
"""Stands wherever a score of a demonstration corpus is printed."""
AS_IT_CAME = "as it came"
"""The start of an encoder that was not trained here."""
FROZEN = "teacher (frozen)"
"""The start of a student that is the teacher with layers after it."""
ON_VECTORS = "given vectors"
"""The start of a student that is layers on a teacher's vectors, of which the encoder is not here."""
Quantisation = Annotated[str, Field(pattern=rf"^(float32|{CODE_PATTERN})$")]
"""float32, a code of so many bits a dimension, or a code of FAISS with its bytes (`evaluation.faiss_codes`)."""
Role = Literal["teacher", "student", "baseline", "encoder"]
"""An "encoder" is one that was evaluated as it came (`distilbench evaluate`)."""


SEARCHES = "retrieval/"
"""What comes before the name of a retrieval set in `ScoreRecord.sets`."""


class ScoreRecord(_Record):
    """One row of the leaderboard: an encoder, its scores, its index costs."""

    kind: Literal["score"] = "score"
    schema_version: Literal[1] = 1
    record_id: str
    run: str
    label: str
    role: Role
    method: str
    dim: int
    bytes_per_vector: int
    disk_bytes: int = 0
    """Bytes of the vector on disk that what the code finds is ranked again by; 0 where there is none."""
    fit_s: float | None = None
    """Processor seconds, of all threads, that the code took to fit."""
    teacher: str
    source: str = ""
    """The folder or hub id that the teacher was named by; of an encoder that was evaluated as it came, its own."""
    start: str
    """What the student's encoder started from ("teacher (frozen)", "teacher layers 1,3,5", a folder)."""
    documents: str = ""
    """Who embeds the documents that its queries search: the teacher's title, with its head if any ("all-MiniLM-L6-v2, its
    PCA"); "" where it does so itself. Of such a row there are retrieval scores alone."""
    parameters: int
    trial: int | None
    hyperparameters: dict[str, Any]
    seed: int
    corpus: str
    corpus_fingerprint: str
    demonstration: bool
    scores: list[Score]
    indexes: list[IndexCost]
    quantisation: Quantisation = "float32"
    configuration: str = ""
    """The name of the row in a comparison file ("HPD-MiniLM-128"); of a sweep's trial that was not finished, how far it came,
    of the others "".
    """
    sets: dict[str, str] = {}
    """By "STS12/test" the SHA-256 of the pairs and gold scores of an STS set: rows are compared on equal sets. By
    "retrieval/quora/test" that of the queries, documents and judgements of a retrieval set; older records have none."""
    cost: EncoderCost | None = None
    notes: list[str] = []
    """What was left out of the row, and why."""
    prompts: dict[str, str] = {}
    """What the encoder has put before a "query", a "document" and, where that is not the query's, other "text"; {} where it
    reads all alike."""
    select: str = "sts"
    """What students of the run are selected by (`selection.Selection`)."""
    latency_ms: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """ms to embed one sentence on one thread, in batches of 32, median (`evaluation.cost`); None where not measured."""
    model: str
    """Folder of the exported sentence-transformers model, relative to the run; "" when none is saved."""
    provenance: Provenance

    @property
    def name(self) -> str:
        """What its row is called."""
        if self.trial is None:
            return self.configuration or self.label
        return ", ".join(filter(None, (self.label, self.configuration)))

    @property
    def group(self) -> CompetitionKey:
        """What the student competes within (`codes.competition_key`)."""
        return competition_key(self.hyperparameters, self.dim)

    @property
    def weights(self) -> str:
        """The SHA-256 of the files of an encoder that was evaluated as it came; "" of any other."""
        return str(self.hyperparameters.get("weights", "")) if self.start == AS_IT_CAME else ""

    @property
    def origin(self) -> str:
        """The end of `source`, which tells apart teachers of one name, but not two ways to write one path."""
        return "/".join(Path(self.source).parts[-2:])

    def compared_on(self, kinds: Collection[str]) -> str:
        """What two rows must have in common to be compared: their test sets of these kinds (`Selection.kinds`).

        Where there are none of them it is the STS sets, and of records without any the corpus.
        """
        tested = {name: digest for name, digest in self.sets.items() if name.endswith("/test")}
        kind_of = {name: "retrieval" if name.startswith(SEARCHES) else "sts" for name in tested}
        for wanted in (kinds, ("sts",)):
            if sets := {name: digest for name, digest in tested.items() if kind_of[name] in wanted}:
                return fingerprint(sets)
        return self.corpus_fingerprint


def selection_groups(dev_groups: Iterable[str]) -> list[str]:
    """The dev STS groups that students are selected by: STS-B where it is there, as in the papers, otherwise every one."""
    groups = sorted(set(dev_groups))
    return ["STSB"] if "STSB" in groups else groups


class _OfReport(BaseModel):
    """A line that only a report's file has (`reporting.study_file`); `read_records` passes over it."""

    kind: Literal["run", "report"]


Line = TypeVar("Line")
_AnyLine = TrialRecord | ScoreRecord | _OfReport
_adapter: TypeAdapter[_AnyLine] = TypeAdapter(Annotated[_AnyLine, Field(discriminator="kind")])
_XZ = b"\xfd7zXZ"
"""The first bytes of a file that xz compressed."""


def append_records(path: Path, records: Iterable[TrialRecord | ScoreRecord]) -> None:
    """Append whole lines to `path`. A torn last line left by a killed writer is cut off first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    payload = b"".join(record.model_dump_json().encode() + b"\n" for record in records)
    try:
        with path.open("ab+") as file:
            _cut_torn_line(file)
            file.write(payload)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        if error.errno in FULL:
            raise disk_full(path, error) from None
        raise


def _cut_torn_line(file: Any) -> None:
    """Leave the file at its end, after its last whole line."""
    file.seek(max(0, file.seek(0, os.SEEK_END) - 1))
    if file.read(1) not in (b"", b"\n"):
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)
    file.seek(0, os.SEEK_END)


def read_records(path: Path) -> Iterator[TrialRecord | ScoreRecord]:
    """The trials and scores of `path` in order; nothing when it does not exist.

    The file may be compressed (xz), and it may be that of a report, which has lines of other kinds as well.
    """
    return (record for record in read_json_lines(path, _adapter) if not isinstance(record, _OfReport))


def read_trials(*paths: Path) -> list[TrialRecord]:
    """The trials among the records of these files (`read_records`), in order."""
    return [record for path in paths for record in read_records(path) if isinstance(record, TrialRecord)]


def read_json_lines(path: Path, adapter: TypeAdapter[Line]) -> Iterator[Line]:
    """The lines of `path`, compressed or not, checked by `adapter`; nothing when it does not exist."""
    if not path.exists():
        return
    payload = path.read_bytes()
    if payload.startswith(_XZ):
        try:
            payload = lzma.decompress(payload)
        except (lzma.LZMAError, EOFError) as error:
            raise InputError(f"{path}: a damaged xz file ({error}); expected a whole file of records") from None
    for row, line in enumerate(payload.split(b"\n")[:-1], start=1):  # what follows the last newline is torn
        try:
            yield adapter.validate_json(line)
        except ValidationError as error:
            raise InputError(f"{path}, row {row}: {invalid(error, 'the line')}") from None
