"""The Tune trainable: one trial of any method, one rung per step, on workers that stay warm between trials."""

from __future__ import annotations

import functools
import time
import traceback
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from ray import tune
from ray.tune import PlacementGroupFactory

from distilbench.errors import InputError
from distilbench.evaluation.geometry import geometry
from distilbench.evaluation.sts import Embed, from_rows, spearman, sts_similarities
from distilbench.methods import get_method
from distilbench.methods.method import Method
from distilbench.prepare.prepared import Prepared, load_prepared
from distilbench.search.space import Budget
from distilbench.training.loop import Diverged, Trainer


def dev_rows(prepared: Prepared) -> NDArray[np.int64]:
    """The distinct rows of the selection sets, rising."""
    return np.unique(np.concatenate([side for s in prepared.dev for side in (s.left_P, s.right_P)]))


def dev_spearman(embed: Embed, prepared: Prepared) -> float:
    """Mean Spearman x 100 over the selection sets."""
    similarities = sts_similarities(embed, [(s.left_P, s.right_P) for s in prepared.dev])
    return float(np.mean([spearman(f, s.score_P) for f, s in zip(similarities, prepared.dev, strict=True)]))


@functools.lru_cache(maxsize=256)
def dev_pca_spearman(prepared_folder: Path, dim: int) -> float:
    """The dev score of the teacher's PCA at `dim`: what a compressed embedding has to beat."""
    prepared = load_prepared(prepared_folder)
    return dev_spearman(lambda rows: prepared.pca.project(prepared.vectors.take(rows), dim), prepared)


def dev_report(method: Method, prepared_folder: Path, prepared: Prepared) -> tuple[float, dict[str, float], str]:
    """Objective, dev metrics and why the embeddings are collapsed ("" when they are not), of the method as it is now.

    The objective is the first score on the method's own task, else the dev Spearman minus that of PCA at the same d.
    """
    rows = dev_rows(prepared)
    vectors = method.embed(rows)
    if not np.isfinite(vectors).all():
        return float("nan"), {}, "an embedding is not finite"
    dev, shape = dev_spearman(from_rows(rows, vectors), prepared), geometry(vectors)
    pca = dev_pca_spearman(prepared_folder, method.params.output_dim)
    metrics = {"dev_spearman": dev, "dev_pca_spearman": pca, **shape._asdict()}
    task = method.task_scores("dev")
    metrics |= {f"dev_{score.set}_{score.metric}": score.value for score in task}
    return task[0].value if task else dev - pca, metrics, shape.collapsed(vectors.shape[1])


def trial_folder(run: Path, number: int) -> Path:
    """Where a trial keeps its checkpoints."""
    return run / "trials" / f"{number:05d}"


def build_method(method_name: str, params: dict[str, Any], prepared: Prepared, seed: int, device: str) -> Method:
    """A method with freshly drawn parameters; the same for the same seed."""
    import torch

    cls = get_method(method_name)
    torch.manual_seed(seed)
    return cls(cls.params_type.model_validate(params), prepared, device)


class TrialTrainable(tune.Trainable):  # type: ignore[misc]
    """Trains to the next rung at each step. Continues from its own newest checkpoint, whoever was killed before.

    Config: `run` and `prepared` (folders), `method`, `seed`, `budget`, `cpus`, `gpus`, and per trial `number` and `params`.
    """

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> PlacementGroupFactory:
        """CPUs and GPUs of a trial. `tune.with_resources` would hide the method's name in Ray's dashboard."""
        return PlacementGroupFactory([{"CPU": config["cpus"], "GPU": config["gpus"]}])

    def setup(self, config: dict[str, Any]) -> None:
        """Start or continue the trial."""
        import torch

        torch.set_num_threads(config["cpus"])
        self._begin(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Take the next trial on this warm worker."""
        self._begin(new_config)
        return True

    def _begin(self, config: dict[str, Any]) -> None:
        self.error = ""
        try:
            self._prepare_trial(config)
        except Exception as error:
            self.error = describe_error(error)

    def _prepare_trial(self, config: dict[str, Any]) -> None:
        from distilbench.encoder import default_device

        self.folder = trial_folder(Path(config["run"]), config["number"])
        self.prepared_folder = Path(config["prepared"])
        self.prepared = load_prepared(self.prepared_folder)
        self.trainer: Trainer | None = None  # the last trial's memory goes before the next one's is taken
        self.method: Method | None = None
        self.method = build_method(config["method"], config["params"], self.prepared, config["seed"], default_device())
        budget = Budget.model_validate(config["budget"])
        self.trainer = Trainer(self.method, config["seed"], budget.steps)
        self.rungs = budget.rung_steps(self.trainer.total_steps)
        self.rung = self.trainer.resume(self.folder)
        # A killed worker may have left a checkpoint whose report never arrived: report that rung again.
        self.report_again = self.rung > 0

    def step(self) -> dict[str, Any]:
        """Train to the next rung, save, and score on dev.

        An exception fails the trial with its reason and is not retried, since it would come again; a worker that dies
        is retried by Tune.
        """
        try:
            return self._fail(self.error) if self.error else self._advance()
        except Exception as error:
            return self._fail(describe_error(error))

    def _fail(self, reason: str) -> dict[str, Any]:
        return {"failed": reason, "objective": float("nan"), "final": True, "done": True}

    def _advance(self) -> dict[str, Any]:
        assert self.trainer is not None and self.method is not None
        method, began = self.method, time.perf_counter()
        loss: float | None = None
        if self.report_again:
            self.report_again = False
        else:
            loss = self.trainer.train_until(self.rungs[self.rung])
            self.rung += 1
            self.trainer.save(self.folder, self.rung)
        objective, metrics, collapsed = dev_report(method, self.prepared_folder, self.prepared)
        final = self.rung == len(self.rungs)
        reported = {**metrics, "loss": loss, "rung_seconds": time.perf_counter() - began}
        return {
            **reported,
            "objective": objective,
            "rung": self.rung,
            "step": self.trainer.step,
            "dim": method.params.output_dim,
            "reported": list(reported),
            "failed": collapsed,
            "final": final or bool(collapsed),
            "done": final or bool(collapsed),
        }

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Nothing: `step` has saved the trial in the run's own folder."""

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Nothing: `setup` has loaded it."""


def describe_error(error: Exception) -> str:
    """Why a trial failed: the message of an expected error, else also its type and place."""
    if isinstance(error, (Diverged, InputError)):
        return str(error)
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(place.filename).name}, line {place.lineno})"


def trainable_for(method_name: str) -> type[TrialTrainable]:
    """The trainable under the method's name, which is what Ray's dashboard shows."""
    return type(method_name.upper(), (TrialTrainable,), {"__doc__": TrialTrainable.__doc__})
