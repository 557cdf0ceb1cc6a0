"""DSE's teacher: a cross-encoder, fine-tuned on the pair task or a user's own, and its logits of the task's pairs.

A cross-encoder reads both sentences at once, so its logits are computed once and kept; what they mean is told in
`methods/parts/pair_head.py`. Axes: P pairs, B batch, T tokens, C outputs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import rich
import torch
from numpy.typing import NDArray
from pydantic import Field
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from torch import Tensor

from distilbench.cluster.nodes import gpus_elsewhere, on_gpu_node
from distilbench.data.corpus import PairTask
from distilbench.encoders.encoder import (
    TOKENS_PER_BATCH,
    EncoderSpec,
    default_device,
    padded,
    readable_tokenizer,
    token_budget_batches,
    transformer_config,
    transformer_folder,
)
from distilbench.encoders.pair_head import OUTPUTS, label_loss, unit_target
from distilbench.errors import InputError
from distilbench.evaluation.pairs import pair_metrics, pair_scores
from distilbench.prepare.pool import ShardTask, run_pool
from distilbench.prepare.prepared import LOGITS
from distilbench.records import Score
from distilbench.settings.pool import AS_FIT, PoolSize
from distilbench.storage.arrays import save_array, shard_name, shard_ranges
from distilbench.storage.files import atomic_path, fingerprint, remove_folder, write_json
from distilbench.storage.store import ArtifactStore
from distilbench.training.length import epoch_steps
from distilbench.training.loop import Diverged, Trainer
from distilbench.training.params import TrainedParams, check_enough
from distilbench.training.phases import Learner, Phase

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

TRAINING_TOKENS = {"cpu": 512, "cuda": 65536}
"""Padded tokens of one forward pass in training: a batch is cut into parts of similar length. 512 takes 7 % fewer CPU
seconds than 1,024 and 25 % fewer than 2,048 (all-MiniLM-L6-v2 on MRPC)."""

SHARD_PAIRS = 512
"""Pairs per shard of logits: what a killed run loses per worker."""

DEV_SCORES = "dev.json"
FILES = ("config.json", "model.safetensors", "tokenizer_config.json", DEV_SCORES)
"""The files of a fine-tuned cross-encoder: those that every one has; a tokenizer may have more."""

STEPS_SHOWN = 10
STEP_VERSION = 1
"""Part of every fingerprint: raise it when the code below changes what it computes."""

PROBLEM: dict[str, str] = {
    "regression": "regression",
    "binary": "single_label_classification",
    "three-class": "single_label_classification",
}
"""What Hugging Face calls each kind of task."""

PairIds = tuple[NDArray[np.int32], NDArray[np.int32] | None]
"""Token ids of a pair, and which of its two sentences each belongs to (None for models that are not told)."""


class CrossEncoderParams(TrainedParams):
    """How a cross-encoder is fine-tuned; the defaults are those of the DSE paper's released code."""

    output_dim: int = Field(default=1, ge=1)
    """Not used: a cross-encoder has as many outputs as the task asks for."""
    epochs: float = Field(default=3, gt=0)
    lr: float = Field(default=2e-5, gt=0, le=1)
    batch_size: int = Field(default=32, ge=2)
    warmup: float = Field(default=0.1, ge=0, lt=1)
    max_tokens: int = Field(default=128, ge=5)
    """The most tokens of both sentences together; what is longer loses its longest sentence's end."""


class CrossEncoder:
    """A `...ForSequenceClassification` model and its tokenizer, whose outputs are read as those of a pair task.

    `columns` are the model's outputs in the order of the task's classes. Of two, the second minus the first is taken.
    """

    def __init__(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, columns: list[int], max_tokens: int
    ) -> None:
        self.model, self.tokenizer, self.columns, self.max_tokens = model, tokenizer, columns, max_tokens
        self.pad = tokenizer.pad_token_id or 0

    @property
    def device(self) -> str:
        """Where the model is."""
        return str(self.model.device)

    def tokens(self, left: Sequence[str], right: Sequence[str]) -> list[PairIds]:
        """Token ids of each pair, cut at the limit."""
        if not left:  # the tokenizer fails on none
            return []
        encoded = self.tokenizer(list(left), list(right), truncation=True, max_length=self.max_tokens, padding=False)
        ids = [np.array(row, dtype=np.int32) for row in encoded["input_ids"]]
        if "token_type_ids" not in encoded:
            return [(row, None) for row in ids]
        return [(row, np.array(t, dtype=np.int32)) for row, t in zip(ids, encoded["token_type_ids"], strict=True)]

    def outputs(self, pairs: Sequence[PairIds], budget: int) -> Tensor:
        """The task's outputs of tokenised pairs with gradients, B x C in the order given, in padded parts of `budget`."""
        parts = token_budget_batches(np.array([len(ids) for ids, _ in pairs]), budget)
        outs = []
        for part in parts:
            inputs = padded([pairs[i][0] for i in part], self.pad, self.device)
            types = [t for i in part if (t := pairs[i][1]) is not None]
            if types:
                inputs["token_type_ids"] = padded(types, 0, self.device)["input_ids"]
            logits = self.model(**inputs).logits[:, self.columns].float()
            outs.append(logits[:, 1:] - logits[:, :1] if len(self.columns) == 2 else logits)
        back = np.empty(len(pairs), dtype=np.int64)
        back[np.concatenate(parts)] = np.arange(len(pairs))
        return torch.cat(outs)[torch.from_numpy(back).to(outs[0].device)]

    def logits(self, left: Sequence[str], right: Sequence[str], *, autocast: bool = False) -> NDArray[np.float32]:
        """The task's outputs of P pairs, P x C, dropout off; in bfloat16 with `autocast`, else in float32."""
        self.model.eval()
        device = torch.device(self.device).type
        with torch.inference_mode(), torch.autocast(device, dtype=torch.bfloat16, enabled=autocast):
            return self.outputs(self.tokens(left, right), TOKENS_PER_BATCH[device]).cpu().numpy()

    def save(self, folder: Path) -> None:
        """Write an ordinary Hugging Face folder."""
        self.tokenizer.model_max_length = self.max_tokens
        with _quiet():
            self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)


@contextmanager
def _quiet() -> Iterator[None]:
    """No progress bars and no load reports of transformers, which would hide our own lines."""
    from transformers.utils import logging

    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)


def _load(
    source: str, what: str, device: str, revision: str | None = None, **options: Any
) -> tuple[Any, Any, set[str]]:
    """Model in evaluation mode, tokenizer, and the names of the model's parameters that were not in the folder."""
    from safetensors import SafetensorError
    from transformers import AutoModelForSequenceClassification

    where: dict[str, Any] = {"local_files_only": True} if Path(source).is_dir() else {"revision": revision}
    try:
        with _quiet():
            model, info = AutoModelForSequenceClassification.from_pretrained(
                source, output_loading_info=True, trust_remote_code=False, dtype=torch.float32, **where, **options
            )
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise InputError(f"{what}: cannot be loaded: {_first_line(error)}") from error
    with _quiet():
        tokenizer = readable_tokenizer(source, what, **where)
    if len(tokenizer) > model.get_input_embeddings().num_embeddings:
        raise InputError(
            f"{what}: its tokenizer has {len(tokenizer)} tokens, its model "
            f"{model.get_input_embeddings().num_embeddings}; expected the model's own tokenizer"
        )
    return model.to(device).eval(), tokenizer, set(info["missing_keys"])


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


def _longest(model: Any, tokenizer: Any) -> int:
    """Tokens that the model reads at most."""
    # RoBERTa's kind counts positions from 2; and a tokenizer that knows no limit says 1e30.
    positions = int(getattr(model.config, "max_position_embeddings", None) or 514) - 2
    limit = int(tokenizer.model_max_length)
    return limit if limit <= positions + 2 else positions


def start_cross_encoder(start: EncoderSpec, task: PairTask, max_tokens: int, device: str) -> CrossEncoder:
    """The encoder `start` with a freshly drawn output layer for `task`: two outputs for a binary task, as is usual.

    Pairs are cut at `max_tokens`, or at the encoder's own limit where that is lower; a prompt of `start` is not used.
    """
    folder = start.folder()
    source, what = str(transformer_folder(folder) if folder else start.name), f"cross-encoder from {start.name!r}"
    outputs = 2 if task.kind == "binary" else OUTPUTS[task.kind]
    model, tokenizer, _ = _load(
        source, what, device, revision=start.revision, num_labels=outputs, problem_type=PROBLEM[task.kind]
    )
    if task.classes:
        model.config.id2label = dict(enumerate(task.classes))
        model.config.label2id = {name: i for i, name in enumerate(task.classes)}
    return CrossEncoder(model, tokenizer, list(range(outputs)), min(max_tokens, _longest(model, tokenizer)))


def load_cross_encoder(folder: Path, task: PairTask | None, device: str = "cpu") -> CrossEncoder:
    """A fine-tuned cross-encoder from a Hugging Face folder; `task` None reads its outputs as they are.

    Its sentences are cut where its own tokenizer says.
    """
    what = f"cross-encoder {str(folder)!r}"
    if not folder.is_dir():
        raise InputError(f"{what}: no such folder; expected a Hugging Face folder of a sequence classification model")
    EncoderSpec(str(folder.absolute())).folder()  # config and weights are there
    columns = _columns(what, transformer_config(folder), task)
    model, tokenizer, missing = _load(str(folder), what, device)
    if missing:
        raise InputError(f"{what}: no weights of {', '.join(sorted(missing)[:3])}; expected a fine-tuned model")
    return CrossEncoder(model, tokenizer, columns, _longest(model, tokenizer))


def check_cross_encoder(folder: Path, task: PairTask) -> None:
    """Load it once, before anything else is made."""
    load_cross_encoder(folder, task)


def _columns(what: str, config: dict[str, Any], task: PairTask | None) -> list[int]:
    """The model's outputs in the order of the task's classes."""
    names = [architecture for architecture in config.get("architectures") or [] if isinstance(architecture, str)]
    if not any(name.endswith("ForSequenceClassification") for name in names):
        raise InputError(f"{what}: its architectures are {names}; expected one ...ForSequenceClassification")
    labels = {int(i): str(name) for i, name in (config.get("id2label") or {0: "LABEL_0", 1: "LABEL_1"}).items()}
    outputs = len(labels)
    if task is None:
        return list(range(outputs))
    allowed = (1, 2) if task.kind == "binary" else (OUTPUTS[task.kind],)
    if outputs not in allowed:
        raise InputError(
            f"{what}: it has {outputs} outputs; expected {' or '.join(map(str, allowed))} for {task.name}, "
            f"a {task.kind} task"
        )
    problem, expected = config.get("problem_type"), PROBLEM[task.kind]
    if task.kind == "binary" and outputs == 1:
        expected = "multi_label_classification"  # one output with a sigmoid
    if problem not in (None, expected):
        raise InputError(f"{what}: its problem_type is {problem!r}; expected {expected!r} for {task.name}")
    if outputs == 1 or all(name.upper() == f"LABEL_{i}" or name.isdigit() for i, name in labels.items()):
        return list(range(outputs))
    column_of, class_names = {name.lower(): i for i, name in labels.items()}, [name.lower() for name in task.classes]
    if task.kind == "binary" and class_names[1] in column_of:  # what the other one is called does not matter
        return [1 - column_of[class_names[1]], column_of[class_names[1]]]
    if set(column_of) != set(class_names):
        raise InputError(
            f"{what}: its outputs are {', '.join(labels.values())} (id2label in config.json); "
            f"expected the classes of {task.name}: {', '.join(task.classes)}"
        )
    return [column_of[name] for name in class_names]


def pair_texts(task: PairTask, split: str, sentences: Sequence[str]) -> tuple[list[str], list[str]]:
    """The sentences of a split's pairs; `sentences` are those of the corpus."""
    rows = task.splits[split]
    return [sentences[i] for i in rows.left_P], [sentences[i] for i in rows.right_P]


class CrossEncoderTraining(Learner):
    """Fine-tuning on the train split: cross-entropy, or squared error on scores scaled to [0, 1]."""

    def __init__(
        self, encoder: CrossEncoder, task: PairTask, sentences: Sequence[str], params: CrossEncoderParams
    ) -> None:
        super().__init__()
        self.model, self.encoder, self.kind = encoder.model, encoder, task.kind
        self.params, self.device = params, encoder.device
        self.pairs = encoder.tokens(*pair_texts(task, "train", sentences))
        self.target_P = unit_target(task, task.splits["train"].target_P)

    def phases(self) -> list[Phase]:
        """One, over the training pairs."""
        p, examples = self.params, len(self.pairs)
        return [
            Phase(
                "fine-tune",
                examples,
                epoch_steps(p.epochs, examples, p.batch_size),
                p.batch_size,
                p.lr,
                self.loss,
            )
        ]

    def loss(self, index_B: NDArray[np.int64]) -> Tensor:
        """The label loss of the pairs numbered index_B."""
        budget = TRAINING_TOKENS[torch.device(self.device).type]
        outputs_BC = self.encoder.outputs([self.pairs[i] for i in index_B], budget)
        return label_loss(outputs_BC, torch.from_numpy(self.target_P[index_B]).to(self.device), self.kind)


def cross_encoder_artifact(
    task: PairTask,
    sentences: Sequence[str],
    start: EncoderSpec,
    params: CrossEncoderParams,
    seed: int,
    store: ArtifactStore,
    size: PoolSize = AS_FIT,
) -> Path:
    """The folder of a cross-encoder fine-tuned from `start` on `task`, made if not there: on this machine, or, where only
    other nodes of the cluster have GPUs, on one of these.

    Dev is scored after every epoch and the best state is kept (DSE, section 4.1.1). A killed fine-tuning goes on from its
    last epoch. `dev.json` in the folder holds the dev scores of the state that was kept.
    """
    check_enough("cross-encoder batch_size", params.batch_size, len(task.splits["train"].target_P), "training pairs")
    parts = {
        "start": start.identity()["source"],
        "pairs": {split: pairs_fingerprint(task, split, sentences) for split in ("train", "dev")},
        "task": [task.kind, task.classes, task.low, task.high],
        "params": params.model_dump(mode="json"),
        "seed": seed,
        "step_version": STEP_VERSION,
    }

    def make(folder: Path, missing: list[str]) -> None:
        if not gpus_elsewhere(size.grow_to):
            return _fine_tune(folder, task, sentences, start, params, seed)
        label = f"Cross-encoder on {task.name}"
        rich.print(f"{label}: fine-tuned on a GPU node; after each epoch its state is in {folder}")
        # Only the pairs' sentences travel, not the corpus.
        texts, own_task = _with_own_rows(task, sentences)
        return on_gpu_node(_fine_tune, folder, own_task, texts, start.absolute(), params, seed, what=label)

    return store.build("cross-encoder", parts, FILES, make)


def _with_own_rows(task: PairTask, sentences: Sequence[str]) -> tuple[list[str], PairTask]:
    """The sentences of a task's pairs, and the task with its rows in these."""
    rows = np.unique(np.concatenate([side for s in task.splits.values() for side in (s.left_P, s.right_P)]))
    splits = {
        name: replace(s, left_P=np.searchsorted(rows, s.left_P), right_P=np.searchsorted(rows, s.right_P))
        for name, s in task.splits.items()
    }
    return [sentences[i] for i in rows], replace(task, splits=splits)


def pairs_fingerprint(task: PairTask, split: str, sentences: Sequence[str]) -> str:
    """What a split's logits and labels depend on: its sentences and targets, wherever they are in a corpus."""
    return fingerprint([*pair_texts(task, split, sentences), task.splits[split].target_P.tolist()])


def _fine_tune(
    folder: Path, task: PairTask, sentences: Sequence[str], start: EncoderSpec, params: CrossEncoderParams, seed: int
) -> None:
    torch.manual_seed(seed)
    encoder = start_cross_encoder(start, task, params.max_tokens, default_device())
    learner = CrossEncoderTraining(encoder, task, sentences, params)
    trainer = Trainer(learner, seed, budget=10**9)
    epoch = len(learner.pairs) // params.batch_size
    ends = [min(k * epoch, trainer.total_steps) for k in range(1, math.ceil(trainer.total_steps / epoch) + 1)]
    work = folder / "training"
    best = _Best(work / "best.safetensors", encoder, task, pair_texts(task, "dev", sentences))
    with Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn()
    ) as progress:
        bar = progress.add_task(f"Cross-encoder on {task.name}", total=trainer.total_steps)
        for k, end in list(enumerate(ends, start=1))[trainer.resume(work) :]:
            while trainer.step < end:
                progress.update(bar, completed=trainer.step)
                try:
                    trainer.train_until(min(end, trainer.step + STEPS_SHOWN))
                except Diverged as error:
                    raise InputError(
                        f"cross-encoder from {start.name!r} on {task.name}: {error}; expected a learning rate below "
                        f"{params.lr:g} to train it"
                    ) from None
            line = best.keep_if_better(k)
            trainer.save(work, k)
            progress.print(f"Cross-encoder on {task.name}, epoch {k} of {len(ends)}: {line}")
    scores = best.restore()
    remove_folder(folder / "saved")
    encoder.save(folder / "saved")
    # Renamed one by one, the whole list last: what has its name is whole.
    for path in (folder / "saved").iterdir():
        path.replace(folder / path.name)
    write_json(folder / DEV_SCORES, scores)
    (folder / "saved").rmdir()
    remove_folder(work)


class _Best:
    """The best state on dev so far, in a file that also says how good it is."""

    def __init__(self, path: Path, encoder: CrossEncoder, task: PairTask, dev: tuple[list[str], list[str]]) -> None:
        self.path, self.encoder, self.task, self.dev = path, encoder, task, dev

    def best_scores(self) -> dict[str, Any] | None:
        from safetensors import safe_open

        if not self.path.exists():
            return None
        with safe_open(self.path, framework="pt") as file:
            return dict(json.loads(file.metadata()["scores"]))

    def keep_if_better(self, epoch: int) -> str:
        """Score dev; what to tell of it. An epoch repeated after a kill scores the same and replaces nothing."""
        from safetensors.torch import save_model

        target_P = self.task.splits["dev"].target_P
        metrics = pair_metrics(self.task.kind, self.encoder.logits(*self.dev), target_P)
        first, best = next(iter(metrics)), self.best_scores()
        line = ", ".join(f"dev {name} {value:.2f}" for name, value in metrics.items())
        if best is not None and best[first] >= metrics[first]:
            return line
        with atomic_path(self.path) as temporary:
            scores = json.dumps({**metrics, "epoch": epoch})
            save_model(self.encoder.model, str(temporary), metadata={"scores": scores})
        return f"{line} (the best)"

    def restore(self) -> dict[str, Any]:
        """Load the best state; its dev metrics and epoch."""
        from safetensors.torch import load_model

        scores = self.best_scores()
        assert scores is not None
        load_model(self.encoder.model, str(self.path), device=self.encoder.device)
        return scores


@dataclass(frozen=True)
class CrossEncoding(ShardTask):
    """Turns pairs into shards of logits; `task` need not have its splits."""

    cross_encoder: Path
    task: PairTask
    left: Sequence[str]
    right: Sequence[str]
    folder: Path

    def load(self) -> Callable[[int, int, int], None]:
        """The cross-encoder onto the device that is where it runs."""
        encoder = load_cross_encoder(self.cross_encoder, self.task, default_device())

        def make(shard: int, start: int, stop: int) -> None:
            left, right = self.left[start:stop], self.right[start:stop]
            logits_PC = encoder.logits(left, right)
            bad = ~np.isfinite(logits_PC).all(axis=1)
            if bad.any():
                first = int(bad.argmax())
                pair = f"{left[first]!r:.100} and {right[first]!r:.100}"
                raise InputError(f"cross-encoder {str(self.cross_encoder)!r}: its logits are not finite for {pair}")
            save_array(self.folder / shard_name(shard), logits_PC)

        return make


def logits_artifact(
    task: PairTask,
    sentences: Sequence[str],
    cross_encoder: Path,
    store: ArtifactStore,
    split: Literal["train", "dev", "test"] = "train",
    *,
    size: PoolSize = AS_FIT,
) -> Path:
    """The folder with `logits.npy`, P x C float32, of a split's pairs by a cross-encoder's folder, computed if not there.

    Needs `ray.init` only when something is missing. Of a regression whose outputs are on another scale than [0, 1] a + b t
    is taken, fitted to the training scores, and said so.
    """
    parts = {
        "cross_encoder": EncoderSpec(str(cross_encoder.absolute())).identity()["source"],
        "pairs": pairs_fingerprint(task, split, sentences),
        "task": [task.kind, task.classes, task.low, task.high],
        "step_version": STEP_VERSION,
    }
    left, right = pair_texts(task, split, sentences)
    ranges = shard_ranges(len(left), SHARD_PAIRS)
    label = f"Cross-encoder logits, {task.name} {split}"

    def make(folder: Path, missing: list[str]) -> None:
        shards = [folder / shard_name(i) for i in range(len(ranges))]
        missing_shards = [(i, start, stop) for i, (start, stop) in enumerate(ranges) if not shards[i].exists()]
        count = sum(stop - start for _, start, stop in missing_shards)
        if count < len(left):
            rich.print(f"{label}: {len(left) - count} of {len(left)} pairs were scored before the interruption")
        if missing_shards:
            work = CrossEncoding(cross_encoder.absolute(), replace(task, splits={}), left, right, folder)
            gpu = default_device() == "cuda" or gpus_elsewhere(size.grow_to)
            run_pool(work, missing_shards, label, "pairs", size=size, gpu=gpu, store=store)
        logits_PC = np.concatenate([np.load(path, allow_pickle=False) for path in shards])
        if task.kind == "regression" and split == "train":
            logits_PC = _on_unit_scale(logits_PC, unit_target(task, task.splits[split].target_P), label)
        save_array(folder / LOGITS, logits_PC)
        for path in shards:
            path.unlink()

    return store.build("logits", parts, [LOGITS], make)


def _on_unit_scale(logits_PC: NDArray[np.float32], target_P: NDArray[np.float32], label: str) -> NDArray[np.float32]:
    """The logits as they are where they predict the scores better than their mean does; else a + b t by least squares.

    A model trained on scores from 0 to 5, or with a sigmoid on its output, would pull the student off the labels' scale.
    """
    t_P = logits_PC[:, 0].astype(np.float64)
    if np.mean((t_P - target_P) ** 2) < np.var(target_P) or np.ptp(t_P) == 0:
        return logits_PC
    slope, intercept = np.polyfit(t_P, target_P, 1)
    rich.print(f"{label}: outputs are not on the scale 0 to 1; taken as {intercept:.3g} + {slope:.3g} x output")
    return (intercept + slope * logits_PC).astype(np.float32)


def cross_encoder_scores(
    task: PairTask, sentences: Sequence[str], cross_encoder: Path, store: ArtifactStore
) -> list[Score]:
    """The teacher's own scores on dev and, where there is one, test."""
    scores: list[Score] = []
    for split in ("dev", "test"):
        if split in task.splits:
            folder = logits_artifact(task, sentences, cross_encoder, store, split)
            scores += pair_scores(task, split, np.load(folder / LOGITS, allow_pickle=False))
    return scores
