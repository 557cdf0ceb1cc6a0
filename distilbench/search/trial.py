"""The Tune trainable: one trial of any method, one rung per step, on workers that stay warm between trials."""

from __future__ import annotations

import functools
import time
import traceback
from pathlib import Path
from typing import Any

import numpy as np
from ray import tune
from ray.tune import PlacementGroupFactory

from distilbench.errors import InputError
from distilbench.evaluation.sts import Embed, spearman, sts_similarities
from distilbench.methods import get_method
from distilbench.methods.method import Method
from distilbench.prepare.prepared import Prepared, load_prepared
from distilbench.search.space import Budget
from distilbench.training.loop import Diverged, Trainer


def dev_spearman(embed: Embed, prepared: Prepared) -> float:
    """Mean Spearman x 100 over the selection sets."""
    similarities = sts_similarities(embed, [(s.left_P, s.right_P) for s in prepared.dev])
    return float(np.mean([spearman(f, s.score_P) for f, s in zip(similarities, prepared.dev, strict=True)]))


@functools.lru_cache(maxsize=256)
def dev_pca_spearman(prepared_folder: Path, dim: int) -> float:
    """The dev score of the teacher's PCA at `dim`: what a compressed embedding has to beat."""
    prepared = load_prepared(prepared_folder)
    return dev_spearman(lambda rows: prepared.pca.project(prepared.vectors.take(rows), dim), prepared)


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
            self.error = _describe(error)

    def _prepare_trial(self, config: dict[str, Any]) -> None:
        from distilbench.encoder import default_device

        self.folder = trial_folder(Path(config["run"]), config["number"])
        self.prepared_folder = Path(config["prepared"])
        self.prepared = load_prepared(self.prepared_folder)
        self.trainer: Trainer | None = None  # the last trial's memory goes before the next one's is taken
        method = build_method(config["method"], config["params"], self.prepared, config["seed"], default_device())
        budget = Budget.model_validate(config["budget"])
        total = method.steps(budget.steps)
        self.rungs = budget.rung_steps(total)
        self.trainer = Trainer(method, config["seed"], total)
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
            return self._fail(_describe(error))

    def _fail(self, reason: str) -> dict[str, Any]:
        return {"failed": reason, "objective": float("nan"), "final": True, "done": True}

    def _advance(self) -> dict[str, Any]:
        assert self.trainer is not None
        method, began = self.trainer.method, time.perf_counter()
        loss = None
        if self.report_again:
            self.report_again = False
        else:
            loss = self.trainer.train_until(self.rungs[self.rung])
            self.rung += 1
            self.trainer.save(self.folder, self.rung)
        dev = dev_spearman(method.embed, self.prepared)
        dim = method.params.output_dim
        pca = dev_pca_spearman(self.prepared_folder, dim)
        final = self.rung == len(self.rungs)
        return {
            "objective": dev - pca,
            "dev_spearman": dev,
            "dev_pca_spearman": pca,
            "loss": loss,
            "rung": self.rung,
            "step": self.trainer.step,
            "rung_seconds": time.perf_counter() - began,
            "dim": dim,
            "reported": ["dev_spearman", "dev_pca_spearman", "loss", "rung_seconds"],
            "final": final,
            "done": final,
        }

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Nothing: `step` has saved the trial in the run's own folder."""

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Nothing: `setup` has loaded it."""


def _describe(error: Exception) -> str:
    if isinstance(error, (Diverged, InputError)):
        return str(error)
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(place.filename).name}, line {place.lineno})"


def trainable_for(method_name: str) -> type[TrialTrainable]:
    """The trainable under the method's name, which is what Ray's dashboard shows."""
    return type(method_name.upper(), (TrialTrainable,), {"__doc__": TrialTrainable.__doc__})
