"""Trials in MLflow or Weights & Biases, through Tune's own callbacks for them.

Tune's callbacks would log all of a trial's settings, folders included, and every number that Tune adds to a result; and
since a trial that fails is to Tune one that ended, they would call it finished. These log a trial's hyper-parameters, what
it reported at which optimiser step, and how it really ended. A continued sweep continues the entries of its trials.
"""

from __future__ import annotations

import importlib
import os
import re
import time
from collections.abc import Sequence
from typing import Any

from distilbench.errors import InputError
from distilbench.progress.tally import finite

TUNES_OWN = frozenset(
    {
        "time_this_iter_s",
        "time_total_s",
        "time_since_restore",
        "iterations_since_restore",
        "timestamp",
        "pid",
        "training_iteration",
    }
)
"""Numbers that Tune adds to each result."""
EXPECTED = "expected mlflow:URI, such as mlflow:sqlite:///mlflow.db or mlflow:http://HOST:5000, or wandb:PROJECT"


def callbacks(log_to: Sequence[str], run_name: str) -> list[Any]:
    """Tune callbacks that log to what `--log-to` names: mlflow:URI, wandb:PROJECT."""
    return [_callback(target, run_name) for target in log_to]


def _callback(target: str, run_name: str) -> Any:
    package, _, where = target.partition(":")
    if package not in ("mlflow", "wandb") or not where:
        raise InputError(f"--log-to {target}: {EXPECTED}")
    try:
        importlib.import_module(package)
    except ImportError:
        raise InputError(
            f"--log-to {target}: {package} is not installed; expected pip install 'distilbench[{package}]'"
        ) from None
    return _mlflow_callback(where, run_name) if package == "mlflow" else _wandb_callback(where, run_name)


def hyperparameters(config: dict[str, Any]) -> dict[str, str]:
    """The logged part of a trial's Tune config: its number, seed, method and hyper-parameters, as text."""
    chosen = {"trial": config["number"], "method": config["method"], "seed": config["seed"], **config["params"]}
    return {name: str(value) for name, value in chosen.items()}


def numbers(result: dict[str, Any]) -> dict[str, float]:
    """The logged part of a result: the finite numbers that the trial reported."""
    values = {name: finite(value) for name, value in result.items() if name not in TUNES_OWN}
    return {name: value for name, value in values.items() if value is not None}


def ending(result: dict[str, Any], failed: bool) -> str:
    """COMPLETE, PRUNED or FAIL, from a trial's last result. `failed`: its worker died for good."""
    if failed or result.get("failed"):
        return "FAIL"
    return "COMPLETE" if result.get("final") else "PRUNED"


def _mlflow_callback(uri: str, run_name: str) -> Any:
    from mlflow.entities import Metric, Param
    from mlflow.tracking import MlflowClient
    from ray.air.integrations.mlflow import MLflowLoggerCallback

    class Trials(MLflowLoggerCallback):  # type: ignore[misc]
        """An MLflow run for each trial, in the experiment of the sweep's name."""

        def log_trial_start(self, trial: Any) -> None:
            if trial in self._trial_runs:  # its worker died and it goes on
                return
            name = f"trial {trial.config['number']}"
            client, experiment = self.mlflow_util._get_client(), self.mlflow_util.experiment_id
            earlier_runs = client.search_runs([experiment], f"attributes.run_name = '{name}'", max_results=1)
            if earlier_runs:
                run_id = earlier_runs[0].info.run_id
                client.update_run(run_id, status="RUNNING")
            else:
                run_id = client.create_run(experiment, run_name=name).info.run_id
                client.log_batch(run_id, params=[Param(k, v) for k, v in hyperparameters(trial.config).items()])
            self._trial_runs[trial] = run_id

        def log_trial_result(self, iteration: int, trial: Any, result: dict[str, Any]) -> None:
            now, step = int(time.time() * 1000), int(result.get("step", iteration))
            metrics = [Metric(k, v, now, step) for k, v in numbers(result).items()]
            if metrics:
                self.mlflow_util._get_client().log_batch(self._trial_runs[trial], metrics=metrics)

        def log_trial_end(self, trial: Any, failed: bool = False) -> None:
            if trial not in self._trial_runs:  # it could not start
                return
            client, run_id = self.mlflow_util._get_client(), self._trial_runs[trial]
            last = trial.last_result or {}
            state = ending(last, failed)
            client.set_tag(run_id, "state", state)
            if last.get("failed"):
                client.set_tag(run_id, "reason", str(last["failed"]))
            client.set_terminated(run_id, "FAILED" if state == "FAIL" else "FINISHED")

    try:
        MlflowClient(tracking_uri=uri).search_experiments(max_results=1)
    except Exception as error:  # MLflow's own, the database's, the file system's, a driver that is missing
        reason = (str(error).splitlines() or [type(error).__name__])[0].split(". ")[0]
        raise InputError(f"--log-to mlflow:{uri}: {reason}; {EXPECTED}") from None
    return Trials(tracking_uri=uri, experiment_name=run_name)


def _wandb_callback(project: str, run_name: str) -> Any:
    from ray.air.integrations.wandb import WandbLoggerCallback, _QueueItem, _set_api_key

    class Trials(WandbLoggerCallback):  # type: ignore[misc]
        """A W&B run for each trial, in a group of the sweep's name."""

        def _start_logging_actor(self, trial: Any, exclude_results: list[str], **kwargs: Any) -> None:
            number = trial.config["number"]
            kwargs |= {
                "id": re.sub(r"[^\w-]", "_", f"{run_name}-{number}"),
                "name": f"{run_name} trial {number}",
                "resume": "allow",
                "config": hyperparameters(trial.config),
                # Else below /tmp/ray, where `wandb sync` of an offline run would have to look for it.
                "dir": trial.config["run"],
                "mode": os.environ.get("WANDB_MODE"),  # a worker of Ray has the environment of Ray's start
            }
            super()._start_logging_actor(trial, exclude_results, **kwargs)

        def log_trial_result(self, iteration: int, trial: Any, result: dict[str, Any]) -> None:
            # W&B's own step. It takes none that is lower than the last one, and Tune counts from 1 when a trial goes on.
            order = {"training_iteration": int(result.get("step", iteration))}
            super().log_trial_result(iteration, trial, {**numbers(result), **order})

        def log_trial_end(self, trial: Any, failed: bool = False) -> None:
            if trial not in self._trial_queues:  # it could not start
                return
            last = trial.last_result or {}
            config = {"state": ending(last, failed), "reason": str(last.get("failed") or "")}
            self._trial_queues[trial].put((_QueueItem.RESULT, {"config": config}))
            super().log_trial_end(trial, failed)

    try:
        _set_api_key()
    except ValueError:
        raise InputError(
            f"--log-to wandb:{project}: no W&B account is known; expected WANDB_API_KEY, or WANDB_MODE=offline"
        ) from None
    return Trials(project=project, group=run_name)
