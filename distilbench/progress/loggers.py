"""Finished trials in MLflow or Weights & Biases: hyper-parameters, what each reported at which step, and how it ended."""

from __future__ import annotations

import importlib
import os
import re
import time
from collections.abc import Callable
from pathlib import Path

from distilbench.errors import InputError
from distilbench.events import Event, Listener
from distilbench.progress.console import RunLog
from distilbench.records import Rung, TrialRecord

EXPECTED = "expected mlflow:URI, such as mlflow:sqlite:///mlflow.db or mlflow:http://HOST:5000, or wandb:PROJECT"


def check_target(target: str) -> tuple[str, str]:
    """The package, and the URI or project, that one `--log-to` names: mlflow:URI, wandb:PROJECT."""
    package, _, where = target.partition(":")
    if package not in ("mlflow", "wandb") or not where:
        raise InputError(f"--log-to {target}: {EXPECTED}")
    try:
        importlib.import_module(package)
    except ImportError:
        wanted = f"pip install 'distilbench[{package}]'"
        raise InputError(f"--log-to {target}: {package} is not installed; expected {wanted}") from None
    return package, where


def make_logger(target: str, run: Path, name: str) -> Listener:
    """A listener that logs to what one `--log-to` names."""
    package, where = check_target(target)
    log = _mlflow_log(where, name) if package == "mlflow" else _wandb_log(where, run, name)

    def listen(event: Event) -> None:
        if event.record:
            try:
                log(event.record)
            except Exception as error:  # theirs, or the network's: what only shows the sweep does not end it
                RunLog(run).line(f"--log-to {target}: {error}")

    return listen


def _name(record: TrialRecord) -> str:
    return f"trial {record.number}" + (f", seed {record.seed}" if record.confirms else "")


def _hyperparameters(record: TrialRecord) -> dict[str, str]:
    chosen = {"trial": record.number, "method": record.method, "seed": record.seed, **record.params}
    return {name: str(value) for name, value in chosen.items()}


def _numbers(rung: Rung) -> dict[str, float]:
    values = {**rung.metrics, "objective": rung.objective}
    return {re.sub(r"[^\w./ -]", "_", name): value for name, value in values.items() if value is not None}


def _mlflow_log(uri: str, name: str) -> Callable[[TrialRecord], None]:
    from mlflow.entities import Metric, Param
    from mlflow.tracking import MlflowClient

    try:
        client = MlflowClient(tracking_uri=uri)
        known = client.get_experiment_by_name(name)
        experiment = known.experiment_id if known else client.create_experiment(name)
    except Exception as error:  # MLflow's own, the database's, the file system's, a driver that is missing
        reason = (str(error).splitlines() or [type(error).__name__])[0].split(". ")[0]
        raise InputError(f"--log-to mlflow:{uri}: {reason}; {EXPECTED}") from None

    def log(record: TrialRecord) -> None:
        now = int(time.time() * 1000)
        run = client.create_run(experiment, run_name=_name(record)).info.run_id
        params = [Param(key, value) for key, value in _hyperparameters(record).items()]
        metrics = [Metric(k, v, now, rung.step) for rung in record.rungs for k, v in _numbers(rung).items()]
        client.log_batch(run, params=params, metrics=metrics)
        client.set_tag(run, "state", record.state)
        client.set_tag(run, "reason", record.reason)
        client.set_terminated(run, "FAILED" if record.state == "FAIL" else "FINISHED")

    return log


def _wandb_log(project: str, folder: Path, name: str) -> Callable[[TrialRecord], None]:
    import wandb

    without_account = os.environ.get("WANDB_MODE", "online") != "online"
    if not (without_account or os.environ.get("WANDB_API_KEY") or wandb.api.api_key):
        raise InputError(
            f"--log-to wandb:{project}: no W&B account is known; expected WANDB_API_KEY, or WANDB_MODE=offline"
        )

    def log(record: TrialRecord) -> None:
        config = {**_hyperparameters(record), "state": record.state, "reason": record.reason}
        run = wandb.init(project=project, group=name, name=f"{name} {_name(record)}", dir=folder, config=config)
        for rung in record.rungs:
            run.log(_numbers(rung), step=rung.step)
        run.finish()

    return log
