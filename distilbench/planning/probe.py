"""Rates measured on this machine within about a minute: on Ray, as many workers side by side as a sweep would have."""

from __future__ import annotations

import datetime
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from distilbench.cluster.provenance import device_title, own_cpus
from distilbench.cluster.resources import ray_cluster, trial_resources
from distilbench.commands.turns import Member
from distilbench.data.calibration import CALIBRATION
from distilbench.data.corpus import Corpus
from distilbench.encoders.encoder import EncoderSpec, default_device, token_ids
from distilbench.evaluation.retrieval import unit
from distilbench.methods import get_method
from distilbench.methods.parts.wanted import wanted_by
from distilbench.planning.probe_worker import CHUNK, ProbeJob, probe_worker
from distilbench.planning.rates import PhaseRate, Rates, Training, rate_name
from distilbench.planning.sample import prepare_sample, sample_of
from distilbench.planning.work import drawn_settings
from distilbench.prepare.augment import operations
from distilbench.prepare.onnx import onnx_artifact
from distilbench.prepare.prepared import Prepared, load_prepared
from distilbench.prepare.selection import make_judged
from distilbench.search.space import SearchSpace
from distilbench.selection import STS
from distilbench.settings.sweep import SweepSettings
from distilbench.storage.store import ArtifactStore
from distilbench.trials.budget import Budget

SETTINGS = 4
"""Hyper-parameter settings that a method's training is measured with: those of the first trials, spread over the search."""
PCA_ROWS = 8192
STUDIED = 8
"""Trials that are written into a study."""


def measure_rates(settings: SweepSettings, members: Sequence[Member], read_s: float, console: Console) -> Rates:
    """The rates of this machine for the methods of a sweep, on its own corpus; `read_s` is how long the command took to read
    that, imports included.

    The workers take what a trial takes (`--cpus-per-trial`, `--gpus-per-trial`), and all that fit here are at work at once.
    Training is measured on up to 2,048 examples with random embeddings in the teacher's place, scoring on random vectors.

    Raises:
        InputError: an encoder or what an augmentation needs is not there, or a trial does not fit.
    """
    import ray

    corpus = members[0].corpus
    needs = wanted_by([(get_method(m.space.method), m.space.possible) for m in members])
    console.print("Measuring rates on this machine: about a minute", markup=False)
    with tempfile.TemporaryDirectory(prefix="distilbench-probe-") as name:
        folder = Path(name)
        began = time.monotonic()
        # A Ray of its own, also where a cluster is: its other machines are not this one, nor do they see this folder.
        with ray_cluster(None, settings.cpus or own_cpus(), False):
            start_s = read_s + time.monotonic() - began
            resources = trial_resources(settings.share)
            small = sample_of(corpus)
            prepared = prepare_sample(settings, corpus, small, folder, needs)
            spread = np.linspace(0, len(corpus.sentences) - 1, min(4 * CHUNK, len(corpus.sentences))).astype(int)
            onnx = settings.backend == "onnx"
            job: dict[str, Any] = {
                "workers": resources.concurrency,
                "folder": folder,
                "prepared": prepared,
                "sentences": [corpus.sentences[int(i)] for i in spread],
                "teacher": settings.teacher_encoder.absolute(),
                "graph": onnx_artifact(settings.teacher_encoder, ArtifactStore(settings.store)) if onnx else None,
                "bf16": settings.backend == "bf16",
                "operations": operations(settings.augmentation) if needs.augmentation else [],
                "methods": [part for m in members for part in _by_student(m.space, drawn_settings(settings, m))],
                "threads": resources.cpus,
            }
            remote = ray.remote(num_cpus=resources.cpus, num_gpus=resources.gpus, max_retries=0)(probe_worker)
            pending = [
                remote.remote(ProbeJob(number=n, asked_at=time.time(), **job)) for n in range(resources.concurrency)
            ]
            probed: list[dict[str, Any]] = ray.get(pending)
        ready = load_prepared(prepared)
        source = settings.student_encoder if needs.tokens else None
        return Rates(
            source="a probe",
            measured_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            device="cuda" if resources.gpus or default_device() == "cuda" else "cpu",
            device_name=device_title(),
            cpus=settings.cpus or own_cpus(),
            side_by_side=resources.concurrency,
            teacher=settings.teacher_encoder.title,
            start_s=start_s,
            worker_s=statistics.fmean(worker["worker_s"] for worker in probed),
            encode_per_s=None
            if settings.teacher_vectors
            else statistics.fmean(worker["encode_per_s"] for worker in probed),
            tokenise_per_s=None if source is None else _tokenising(source, small),
            augment_per_s={
                name: statistics.fmean(worker["augment_per_s"][name] for worker in probed)
                for name in probed[0]["augment_per_s"]
            },
            **_pca(ready.vectors.width),
            training={
                name: _training([worker["training"][name] for worker in probed]) for name in probed[0]["training"]
            },
            driver_s=_driver_seconds(folder),
            **_scoring(settings, members, ready, folder),
        )


def _by_student(space: SearchSpace, drawn: list[dict[str, Any]]) -> list[tuple[str, str, Budget, list[dict[str, Any]]]]:
    """Some of the settings of each student that they name: the name of their rate, the method, its budget, the settings."""
    students = dict.fromkeys(setting.get("student") for setting in drawn)
    own = {student: [s for s in drawn if s.get("student") == student] for student in students}
    return [(rate_name(space.method, s), space.method, space.budget, _spread(chosen)) for s, chosen in own.items()]


def _spread(drawn: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Some of the settings, the first and the last among them."""
    chosen = np.linspace(0, len(drawn) - 1, min(SETTINGS, len(drawn))).astype(int)
    return [drawn[int(i)] for i in chosen]


def _training(measured: Sequence[dict[str, Any]]) -> Training:
    """The mean of what the workers measured."""
    first = measured[0]["phases"]
    return Training(
        phases={
            name: PhaseRate(batch=batch, step_s=statistics.fmean(one["phases"][name][1] for one in measured))
            for name, (batch, _) in first.items()
        },
        **{
            key: statistics.fmean(one[key] for one in measured)
            for key in ("begin_s", "judge_s", "finish_s", "embed_per_s")
        },
    )


def _tokenising(source: EncoderSpec, corpus: Corpus) -> float:
    model = source.load()
    texts = list(corpus.sentences)
    before = source.prompt_before() or ""
    token_ids(model, texts[:64], before)
    began = time.perf_counter()
    token_ids(model, texts, before)
    return len(texts) / (time.perf_counter() - began)


def _pca(width: int) -> dict[str, float]:
    """As `prepare.pca.fit_pca`: moments of rows in float64, then one eigendecomposition."""
    rows_ND = np.random.default_rng(0).standard_normal((PCA_ROWS, width), dtype=np.float32)
    began = time.perf_counter()
    rows = rows_ND.astype(np.float64)
    moment_DD = rows.T @ rows
    per_row = (time.perf_counter() - began) / PCA_ROWS
    began = time.perf_counter()
    np.linalg.eigh(moment_DD)
    return {"pca_row_s": per_row, "pca_s": time.perf_counter() - began}


def _driver_seconds(folder: Path) -> float:
    """What the study takes for a trial of three rungs. Tune's own part, some 10 to 40 ms, is not in it."""
    from optuna.trial import TrialState

    from distilbench.search.study import begin_trial, open_study, rung_key, sqlite_url

    study = open_study(sqlite_url(folder / "study.db"), "probe")
    began = time.perf_counter()
    for number in range(STUDIED):
        trial = begin_trial(study, number, {"output_dim": 8}, {}, {})
        for rung in (1, 2, 3):
            trial.report(float(rung), rung)
            trial.set_user_attr(rung_key(rung), {"objective": 0.0, "step": rung})
        study.tell(trial, 1.0, TrialState.COMPLETE)
    return (time.perf_counter() - began) / STUDIED


def _scoring(settings: SweepSettings, members: Sequence[Member], prepared: Prepared, folder: Path) -> dict[str, float]:
    """One row of the leaderboard, of random vectors at a dimension in the middle, on every set; and a page of it."""
    from distilbench.reporting.page import write_report
    from distilbench.trials.scoring import Candidate, Encoded, evaluation_rows, score_candidate

    corpus, rng = members[0].corpus, np.random.default_rng(0)
    dims = sorted(d for m in members for d in m.space.dimensions)
    d = dims[len(dims) // 2]
    tasks = settings.scored_tasks(corpus.selection)
    count = len(evaluation_rows(corpus.of_tasks(tasks)))
    if corpus.selection != STS:  # of all rows, where the sample's are numbered anew
        width = prepared.vectors.width
        judged = make_judged(corpus, lambda rows: unit(rng.standard_normal((len(rows), width), dtype=np.float32)))
        prepared = replace(prepared, judged=judged.dev, tested=judged.test)
    encoded = Encoded(
        unit(rng.standard_normal((count, d), dtype=np.float32)),
        unit(rng.standard_normal((min(CALIBRATION, len(corpus.train)), d), dtype=np.float32)),
    )
    candidate = Candidate("probe", "baseline", "random_projection", d, {"output_dim": d}, 0)
    times = []
    for _ in range(2):  # the first one imports, and waits for nothing afterwards
        began = time.perf_counter()
        scored = score_candidate(candidate, prepared, corpus, encoded, [d], settings.quantisations, 0, folder, tasks)
        times.append(time.perf_counter() - began)
    began = time.perf_counter()
    write_report([record for record, _ in scored], folder / "report", title="probe")
    return {"row_s": min(times), "report_s": time.perf_counter() - began}
