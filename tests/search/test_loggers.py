"""Trials in a real MLflow store and in W&B's offline files, from a real Tune run with results like a trial's."""

from __future__ import annotations

import json
import math
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ray import tune

from distilbench.errors import InputError
from distilbench.progress.loggers import callbacks, ending, hyperparameters, numbers

STEPS = (50, 150, 450)


def toy() -> type[tune.Trainable]:
    """Within a function, since workers cannot import a test's module."""

    class Toy(tune.Trainable):  # type: ignore[misc]
        """Trial 0 completes, 1 is stopped after its first rung, 2 fails at its second."""

        def setup(self, config: dict[str, Any]) -> None:
            self.reset_config(config)

        def reset_config(self, config: dict[str, Any]) -> bool:
            self.number, self.rung = config["number"], 0
            return True

        def step(self) -> dict[str, Any]:
            if (self.number, self.rung) == (2, 1):
                return {"failed": "loss is nan", "objective": math.nan, "final": True, "done": True}
            self.rung += 1
            last = self.rung == len(STEPS)
            return {
                "rung": self.rung,
                "step": STEPS[self.rung - 1],
                "loss": None if self.rung == 1 else 0.5,
                "dev_score": 70.0 + self.rung,
                "objective": float(self.rung),
                "reported": ["dev_score", "loss"],
                "failed": "",
                "final": last,
                "done": last or self.number == 1,
            }

        def save_checkpoint(self, folder: str) -> None: ...

        def load_checkpoint(self, checkpoint: Any) -> None: ...

    return Toy


def run(folder: Path, made: list[Any]) -> None:
    """Three trials of `toy` with `made` as callbacks."""
    (folder / "runs" / "r").mkdir(parents=True, exist_ok=True)
    tuner = tune.Tuner(
        toy(),
        param_space={
            "run": str(folder / "runs" / "r"),
            "prepared": str(folder / "runs" / "r" / "prepared"),
            "method": "mcr2",
            "seed": 5,
            "budget": {"trials": 3, "steps": 450},
            "cpus": 1,
            "number": tune.grid_search([0, 1, 2]),
            "params": {"output_dim": 32, "lambda": 0.25, "betas": [0.9, 0.99], "head": "elu"},
        },
        tune_config=tune.TuneConfig(reuse_actors=True),
        run_config=tune.RunConfig(
            storage_path=str(folder / "tune"),
            verbose=0,
            callbacks=made,
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
        ),
    )
    assert not tuner.fit().errors


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_mlflow_has_every_trial_and_how_it_ended(
    tmp_path: Path, cluster: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mlflow", reason="MLflow is not installed (extra: mlflow)")
    from mlflow.tracking import MlflowClient

    monkeypatch.chdir(tmp_path)
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    for _ in range(2):  # the second time as a continued sweep does: no trial comes twice
        run(tmp_path, callbacks([f"mlflow:{uri}"], "my-run"))
    client = MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name("my-run")
    runs = {r.info.run_name: r for r in client.search_runs([experiment.experiment_id])}
    assert sorted(runs) == ["trial 0", "trial 1", "trial 2"]
    assert len(client.search_runs([experiment.experiment_id])) == 3
    assert {n: (r.info.status, r.data.tags["state"]) for n, r in runs.items()} == {
        "trial 0": ("FINISHED", "COMPLETE"),
        "trial 1": ("FINISHED", "PRUNED"),
        "trial 2": ("FAILED", "FAIL"),
    }
    assert runs["trial 2"].data.tags["reason"] == "loss is nan"
    assert runs["trial 0"].data.params == {
        "trial": "0", "method": "mcr2", "seed": "5",
        "output_dim": "32", "lambda": "0.25", "betas": "[0.9, 0.99]", "head": "elu",
    }  # fmt: skip
    assert runs["trial 0"].data.metrics == {
        "rung": 3, "step": 450, "loss": 0.5, "dev_score": 73, "objective": 3,
    }  # fmt: skip
    history = client.get_metric_history(runs["trial 0"].info.run_id, "dev_score")
    assert sorted({(m.step, m.value) for m in history}) == [(50, 71), (150, 72), (450, 73)]
    assert [m.step for m in client.get_metric_history(runs["trial 1"].info.run_id, "loss")] == []


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_wandb_has_every_trial_offline(tmp_path: Path, cluster: None, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb", reason="W&B is not installed (extra: wandb)")
    monkeypatch.setenv("WANDB_MODE", "offline")
    run(tmp_path, callbacks(["wandb:my-project"], "my run"))
    files = sorted((tmp_path / "runs" / "r" / "wandb").rglob("*.wandb"))
    while any(
        "id" not in read_wandb(file) for file in files
    ):  # W&B's own process is still writing; the test has its limit
        time.sleep(0.2)
    found = {kept["id"]: kept for kept in map(read_wandb, files)}
    assert sorted(found) == ["my_run-0", "my_run-1", "my_run-2"]
    assert {i: (f["config"]["state"], f["config"]["reason"]) for i, f in found.items()} == {
        "my_run-0": ("COMPLETE", ""), "my_run-1": ("PRUNED", ""), "my_run-2": ("FAIL", "loss is nan"),
    }  # fmt: skip
    first = found["my_run-0"]
    assert first["project"] == "my-project" and first["group"] == "my run" and first["name"] == "my run trial 0"
    assert first["config"]["lambda"] == "0.25" and "prepared" not in first["config"]
    assert [h["dev_score"] for h in first["history"] if "dev_score" in h] == [71, 72, 73]
    assert [h["step"] for h in first["history"] if "step" in h] == [50, 150, 450]
    order = [h["_step"] for h in first["history"] if "dev_score" in h]
    assert order == [50, 150, 450], "a trial that goes on in another worker would lose what it says under lower numbers"


def wandb_entries(content: bytes) -> Iterator[bytes]:
    """The entries of LevelDB's log format after W&B's header of 7 bytes, in blocks of 32 KiB."""
    place, entry = 7, b""
    while place + 7 <= len(content):
        if 32768 - place % 32768 < 7:  # no room for a header: the block is padded
            place += 32768 - place % 32768
            continue
        size, kind = struct.unpack_from("<HB", content, place + 4)  # after a checksum
        entry += content[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in (1, 4):  # whole, or the last part
            yield entry
            entry = b""


def read_wandb(path: Path) -> dict[str, Any]:
    """Name, settings and history of a W&B run's offline file."""
    from wandb.proto import wandb_internal_pb2

    kept: dict[str, Any] = {"config": {}, "history": []}
    for data in wandb_entries(path.read_bytes()):
        item = wandb_internal_pb2.Record()
        item.ParseFromString(data)
        kind = item.WhichOneof("record_type")
        if kind == "run":
            kept |= {"id": item.run.run_id, "name": item.run.display_name}
            kept |= {"project": item.run.project, "group": item.run.run_group}
            kept["config"] |= {u.key: json.loads(u.value_json) for u in item.run.config.update}
        elif kind == "config":
            kept["config"] |= {u.key or "/".join(u.nested_key): json.loads(u.value_json) for u in item.config.update}
        elif kind == "history":
            values = {i.key or "/".join(i.nested_key): json.loads(i.value_json) for i in item.history.item}
            kept["history"].append(values)
    return kept


@pytest.mark.parametrize("target", ["mlflow:sqlite:///m.db", "wandb:p"])
def test_a_trial_that_could_not_start_does_not_end_the_sweep(
    target: str, tmp_path: Path, cluster: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(target.partition(":")[0])
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.chdir(tmp_path)
    (made,) = callbacks([target], "r")
    made.setup()
    made.log_trial_end(object(), failed=True)


@pytest.mark.parametrize("package", ["mlflow", "wandb"])
def test_a_package_that_is_missing_is_named(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, package, None)
    with pytest.raises(InputError, match=rf"--log-to {package}:x: .*'distilbench\[{package}\]'"):
        callbacks([f"{package}:x"], "r")


@pytest.mark.parametrize(
    "target", ["mlflow:nonsense://x", "mlflow:mlruns", "mlflow:sqlite:///file/m.db", "wandb", "x:y"]
)
def test_what_cannot_be_logged_to_is_refused(target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow", reason="MLflow is not installed (extra: mlflow)")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=f"--log-to {target}: .*mlflow:sqlite:///mlflow.db.*wandb:PROJECT") as refused:
        callbacks([target], "r")
    assert "\n" not in str(refused.value)


def test_wandb_without_an_account_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb", reason="W&B is not installed (extra: wandb)")
    for name in ("WANDB_API_KEY", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(InputError, match=r"--log-to wandb:p: .*WANDB_API_KEY"):
        callbacks(["wandb:p"], "r")


def test_what_is_logged_of_a_trial() -> None:
    result = {"step": 3, "loss": None, "objective": math.nan, "done": True, "reported": ["a"], "time_total_s": 1.0}
    assert numbers(result) == {"step": 3.0}
    config = {"number": 4, "method": "m", "seed": 0, "params": {"a": [1]}, "run": "/r", "gpus": 0}
    assert hyperparameters(config) == {"trial": "4", "method": "m", "seed": "0", "a": "[1]"}
    assert ending({"final": True, "failed": ""}, failed=True) == "FAIL"
