"""Finished trials in a real MLflow store and in W&B's offline files."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from watched import failed, record, tally_of

from distilbench.errors import InputError
from distilbench.progress.console import LOG
from distilbench.progress.loggers import make_logger
from distilbench.records import Rung

RUNGS = [
    Rung(rung=n, step=step, objective=float(n), metrics={"dev_mrr@10": 70.0 + n, "loss": None if n == 1 else 0.5})
    for n, step in ((1, 50), (2, 150))
]


def sweep(folder: Path, target: str) -> None:
    """A sweep of three trials, one of each end."""
    folder.mkdir(exist_ok=True)
    tally = tally_of(folder)
    tally.listeners.append(make_logger(target, folder, "my-run"))
    tally.finished(record(0, rungs=RUNGS, seed=5))
    tally.finished(record(1, state="PRUNED", rungs=RUNGS[:1]))
    tally.finished(failed(2, "loss is nan"))
    tally.finished(record(0, rungs=RUNGS, seed=6, confirms=True))


def test_mlflow_has_every_trial_and_how_it_ended(tmp_path: Path) -> None:
    pytest.importorskip("mlflow", reason="MLflow is not installed (extra: mlflow)")
    from mlflow.tracking import MlflowClient

    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    sweep(tmp_path / "r", f"mlflow:{uri}")
    client = MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name("my-run")
    runs = {r.info.run_name: r for r in client.search_runs([experiment.experiment_id])}
    assert {n: (r.info.status, r.data.tags["state"]) for n, r in runs.items()} == {
        "trial 0": ("FINISHED", "COMPLETE"),
        "trial 1": ("FINISHED", "PRUNED"),
        "trial 2": ("FAILED", "FAIL"),
        "trial 0, seed 6": ("FINISHED", "COMPLETE"),
    }
    assert runs["trial 2"].data.tags["reason"] == "loss is nan"
    assert runs["trial 0"].data.params == {"trial": "0", "method": "mcr2", "seed": "5", "output_dim": "32"}
    assert runs["trial 0"].data.metrics == {"dev_mrr_10": 72.0, "loss": 0.5, "objective": 2.0}
    history = client.get_metric_history(runs["trial 0"].info.run_id, "dev_mrr_10")
    assert sorted((m.step, m.value) for m in history) == [(50, 71.0), (150, 72.0)]


def test_wandb_has_every_trial_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb", reason="W&B is not installed (extra: wandb)")
    monkeypatch.setenv("WANDB_MODE", "offline")
    sweep(tmp_path / "r", "wandb:my-project")

    def logged() -> list[bytes]:
        return [path.read_bytes() for path in (tmp_path / "r" / "wandb").rglob("*.wandb")]

    until = time.monotonic() + 60  # W&B's own process writes what it was told
    while sum(b"dev_mrr_10" in held for held in logged()) < 3 and time.monotonic() < until:
        time.sleep(0.1)
    files = logged()
    assert len(files) == 4
    for name, state in (("trial 0", "COMPLETE"), ("trial 1", "PRUNED"), ("trial 2", "FAIL")):
        assert any(f"my-run {name}".encode() in held and state.encode() in held for held in files)
    assert sum(b"dev_mrr_10" in held for held in files) == 3


def test_a_log_that_fails_does_not_end_the_sweep(tmp_path: Path) -> None:
    pytest.importorskip("mlflow", reason="MLflow is not installed (extra: mlflow)")
    target = f"mlflow:sqlite:///{tmp_path / 'mlflow.db'}"
    log = make_logger(target, tmp_path, "my-run")
    (tmp_path / "mlflow.db").write_bytes(b"no database")
    tally = tally_of(tmp_path)
    tally.listeners.append(log)
    tally.finished(record(0))
    assert f"--log-to {target}: " in (tmp_path / LOG).read_text()


@pytest.mark.parametrize("package", ["mlflow", "wandb"])
def test_a_package_that_is_missing_is_named(package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, package, None)
    with pytest.raises(InputError, match=rf"--log-to {package}:x: .*'distilbench\[{package}\]'"):
        make_logger(f"{package}:x", tmp_path, "r")


@pytest.mark.parametrize("target", ["mlflow:nonsense://x", "mlflow:sqlite:///file/m.db", "wandb", "x:y"])
def test_what_cannot_be_logged_to_is_refused(target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow", reason="MLflow is not installed (extra: mlflow)")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=f"--log-to {target}: .*mlflow:sqlite:///mlflow.db.*wandb:PROJECT") as refused:
        make_logger(target, tmp_path, "r")
    assert "\n" not in str(refused.value)


def test_wandb_without_an_account_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb", reason="W&B is not installed (extra: wandb)")
    for name in ("WANDB_API_KEY", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(InputError, match=r"--log-to wandb:p: .*WANDB_API_KEY"):
        make_logger("wandb:p", tmp_path, "r")
