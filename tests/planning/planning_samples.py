"""Rates by hand."""

from __future__ import annotations

from typing import Any

from distilbench.planning.rates import PhaseRate, Rates, Training


def given_rates(**other: Any) -> Rates:
    """Rates by hand."""
    training = Training(
        phases={"compress": PhaseRate(batch=16, step_s=0.02), "distil": PhaseRate(batch=16, step_s=0.3)},
        begin_s=0.5,
        judge_s=1.0,
        embed_per_s=200.0,
        finish_s=2.0,
    )
    known: dict[str, Any] = {
        "source": "a probe",
        "measured_at": "2026-01-01T00:00:00+00:00",
        "device": "cpu",
        "device_name": "CPU (test)",
        "cpus": 2,
        "side_by_side": 2,
        "teacher": "tiny",
        "start_s": 12.0,
        "worker_s": 8.0,
        "encode_per_s": 50.0,
        "tokenise_per_s": 4000.0,
        "pca_row_s": 1e-4,
        "pca_s": 0.5,
        "training": dict.fromkeys(("mcr2", "hpd", "mcr2_distil"), training),
        "driver_s": 0.1,
        "row_s": 2.0,
        "report_s": 3.0,
    }
    return Rates.model_validate({**known, **other})
