"""DSE's teacher: a cross-encoder, fine-tuned on the pair task or a user's own, and its logits of the task's pairs.

A cross-encoder reads both sentences at once, so its logits are computed once and kept; what they mean is told in
`methods/parts/pair_head.py`. Model and training are sentence-transformers' own. Axes: P pairs, C outputs.
"""

# mypy: disable-error-code="misc"
# sentence-transformers' evaluator tells no type.

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import rich
import torch
from numpy.typing import NDArray

from distilbench.cluster.nodes import gpus_elsewhere, on_gpu_node
from distilbench.data.corpus import PairTask
from distilbench.encoders.encoder import (
    EncoderSpec,
    default_device,
    missing_weights,
    quiet_transformers,
    readable_tokenizer,
    transformer_folder,
)
from distilbench.encoders.pair_head import OUTPUTS, unit_target
from distilbench.errors import InputError
from distilbench.evaluation.pairs import pair_metrics, pair_scores
from distilbench.prepare.pool import ShardTask, run_pool
from distilbench.prepare.prepared import LOGITS
from distilbench.records import Score
from distilbench.settings.place import AS_FIT, PoolSize
from distilbench.storage.arrays import ShardedArray, save_array, shard_name
from distilbench.storage.files import fingerprint, read_json_object, remove_folder
from distilbench.storage.store import ArtifactStore

if TYPE_CHECKING:
    import sentence_transformers

BATCH = {"cpu": 32, "cuda": 256}
"""Pairs of one forward pass; sentence-transformers sorts them by length."""
SHARD_PAIRS = 512
"""Pairs per shard of logits: what a killed run loses per worker."""
FILES = ("config.json", "model.safetensors", "tokenizer_config.json")
"""The files of a fine-tuned cross-encoder that every one has, the last to be written first; a tokenizer may have more."""
STEP_VERSION = 2


@dataclass(frozen=True)
class CrossEncoderParams:
    """How a cross-encoder is fine-tuned: as the DSE paper's released code does, at five times its learning rate, since small
    encoders hardly learn a small task otherwise. `max_tokens` are of both sentences."""

    epochs: float = 3
    lr: float = 1e-4
    batch_size: int = 32
    warmup: float = 0.1
    max_tokens: int = 128


@dataclass(frozen=True)
class TaskCrossEncoder:
    """A cross-encoder read as a pair task's; `columns` are its outputs in the order of the task's classes."""

    model: sentence_transformers.CrossEncoder
    columns: list[int]

    def logits(self, left: Sequence[str], right: Sequence[str]) -> NDArray[np.float32]:
        """The task's outputs of P pairs, P x C; of two the second minus the first is taken."""
        if not left:
            return np.empty((0, 1 if len(self.columns) < 3 else len(self.columns)), dtype=np.float32)
        pairs = list(zip(left, right, strict=True))
        batch = BATCH[self.model.device.type]
        found = self.model.predict(pairs, batch_size=batch, show_progress_bar=False, activation_fn=torch.nn.Identity())
        found_PC: NDArray[np.float32] = np.asarray(found, dtype=np.float32).reshape(len(pairs), -1)[:, self.columns]
        return found_PC[:, 1:] - found_PC[:, :1] if len(self.columns) == 2 else found_PC


def start_cross_encoder(
    start: EncoderSpec, task: PairTask, max_tokens: int, device: str
) -> sentence_transformers.CrossEncoder:
    """The encoder `start` with a freshly drawn output layer for `task`: two outputs for a binary task, as is usual.

    Pairs are cut at `max_tokens`, or at the encoder's own limit where that is lower; a prompt of `start` is not used.
    """
    folder = start.folder()
    source, what = str(transformer_folder(folder) if folder else start.name), f"cross-encoder from {start.name!r}"
    outputs = 2 if task.kind == "binary" else OUTPUTS[task.kind]
    model = _load(source, what, device, num_labels=outputs, revision=start.revision)
    model.max_seq_length = min(max_tokens, model.max_seq_length)
    config: Any = model.config
    config.problem_type = "regression" if task.kind == "regression" else "single_label_classification"
    if task.classes:
        config.id2label = dict(enumerate(task.classes))
        config.label2id = {name: i for i, name in enumerate(task.classes)}
    return model


def load_cross_encoder(folder: Path, task: PairTask | None, device: str = "cpu") -> TaskCrossEncoder:
    """A fine-tuned cross-encoder from a Hugging Face folder, which cuts sentences where its own tokenizer says; `task` None
    reads its outputs as they are."""
    what = f"cross-encoder {str(folder)!r}"
    if not folder.is_dir():
        raise InputError(f"{what}: no such folder; expected a Hugging Face folder of a sequence classification model")
    EncoderSpec(str(folder.absolute())).folder()  # config and weights are there
    columns = _columns(what, read_json_object(folder / "config.json", "expected a Hugging Face model's"), task)
    readable_tokenizer(str(folder), what)
    model = _load(str(folder), what, device)
    if missing := missing_weights(model.model):
        raise InputError(f"{what}: no weights of {', '.join(missing[:3])}; expected a fine-tuned model")
    return TaskCrossEncoder(model, columns)


def _load(source: str, what: str, device: str, **options: Any) -> sentence_transformers.CrossEncoder:
    from safetensors import SafetensorError
    from sentence_transformers import CrossEncoder

    quiet_transformers()
    local, model_kwargs = Path(source).is_dir(), {"dtype": torch.float32}
    try:
        model = CrossEncoder(source, device=device, local_files_only=local, model_kwargs=model_kwargs, **options)
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(f"{what}: cannot be loaded: {reason:.200}") from error
    return model.eval()


def _columns(what: str, config: dict[str, Any], task: PairTask | None) -> list[int]:
    architectures = list(map(str, config.get("architectures") or []))
    if not any(name.endswith("ForSequenceClassification") for name in architectures):
        raise InputError(f"{what}: its architectures are {architectures}; expected one ...ForSequenceClassification")
    labels = {int(i): str(name) for i, name in (config.get("id2label") or {0: "LABEL_0", 1: "LABEL_1"}).items()}
    unchanged = list(range(len(labels)))
    if task is None:
        return unchanged
    allowed = (1, 2) if task.kind == "binary" else (OUTPUTS[task.kind],)
    problem, regression = config.get("problem_type"), task.kind == "regression"
    if len(labels) not in allowed or (problem is not None and (problem == "regression") != regression):
        raise InputError(
            f"{what}: it has {len(labels)} outputs, its problem_type is {problem!r}; expected "
            f"{' or '.join(map(str, allowed))} for {task.name}, a {task.kind} task"
        )
    if len(labels) == 1 or all(name.upper() == f"LABEL_{i}" or name.isdigit() for i, name in labels.items()):
        return unchanged
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


def _identity(task: PairTask, texts: Mapping[str, tuple[list[str], list[str]]]) -> dict[str, Any]:
    """What logits and labels of some splits depend on: sentences and targets, wherever they are in a corpus."""
    return {
        "pairs": {split: fingerprint([*both, task.splits[split].target_P.tolist()]) for split, both in texts.items()},
        "task": [task.kind, task.classes, task.low, task.high],
        "step_version": STEP_VERSION,
    }


@dataclass(frozen=True)
class FineTuning:
    """A cross-encoder fine-tuned from `start` on the training pairs of `task`; `texts` are the sentences of each split's."""

    task: PairTask
    texts: Mapping[str, tuple[list[str], list[str]]]
    start: EncoderSpec
    seed: int
    params: CrossEncoderParams = CrossEncoderParams()

    def artifact(self, store: ArtifactStore, size: PoolSize = AS_FIT) -> Path:
        """The folder of the cross-encoder, made if not there: on this machine, or, where only other nodes of the cluster have
        GPUs, on one of these.

        Dev is scored after every epoch and the best state is kept (DSE, section 4.1.1). A killed fine-tuning goes on from
        its last epoch.
        """
        task, batch, pairs = self.task, self.params.batch_size, len(self.task.splits["train"].target_P)
        if pairs < batch:
            raise InputError(f"cross-encoder batch_size is {batch}, but the corpus has only {pairs} training pairs")
        parts = {
            "start": self.start.identity()["source"],
            "params": asdict(self.params),
            "seed": self.seed,
            **_identity(task, {split: self.texts[split] for split in ("train", "dev")}),
        }

        def make(folder: Path, missing: list[str]) -> None:
            if not gpus_elsewhere(size.grow_to):
                return self.run(folder)
            there = replace(self, start=self.start.absolute())
            return on_gpu_node(FineTuning.run, there, folder, what=f"Cross-encoder on {task.name}")

        return store.build("cross-encoder", parts, FILES, make)

    def run(self, folder: Path) -> None:
        """Fine-tune into `folder`, from the last epoch that is there."""
        torch.manual_seed(self.seed)
        model = start_cross_encoder(self.start, self.task, self.params.max_tokens, default_device())
        work, saved = folder / "training", folder / "saved"
        trainer = self._trainer(model, work)
        # The last whole checkpoint of a training that was killed: what is written last is its state.
        whole = [file.parent for file in work.glob("checkpoint-*/trainer_state.json")]
        last = max(whole, key=lambda path: int(path.name.split("-")[1]), default=None)
        trainer.train(resume_from_checkpoint=last and str(last))
        remove_folder(saved)
        model.save_pretrained(str(saved), create_model_card=False)
        for path in sorted(saved.iterdir(), key=lambda path: path.name == FILES[0]):  # where the last is, all are
            path.replace(folder / path.name)
        saved.rmdir()
        remove_folder(work)

    def _trainer(self, model: sentence_transformers.CrossEncoder, work: Path) -> Any:
        from datasets import Dataset
        from sentence_transformers.base.evaluation import BaseEvaluator
        from sentence_transformers.cross_encoder import CrossEncoderTrainer, CrossEncoderTrainingArguments, losses
        from transformers import PrinterCallback

        task, params, tuned = self.task, self.params, f"Cross-encoder from {self.start.name!r} on {self.task.name}"
        train, dev, (left, right) = task.splits["train"], self.texts["dev"], self.texts["train"]
        regression, columns = task.kind == "regression", list(range(model.num_labels))
        target = unit_target(task, train.target_P) if regression else train.target_P.astype(np.int64)

        class DevScores(BaseEvaluator):
            """The task's metrics on its dev pairs; the first of them chooses the state that is kept."""

            def __call__(self, model: Any, *given: Any, epoch: float = -1, **more: Any) -> dict[str, float]:
                logits_PC = TaskCrossEncoder(model, columns).logits(*dev)
                if not np.isfinite(logits_PC).all():
                    raise InputError(f"{tuned}: its training diverged")
                metrics = pair_metrics(task.kind, logits_PC, task.splits["dev"].target_P)
                told = ", ".join(f"dev {name} {value:.2f}" for name, value in metrics.items())
                rich.print(f"{tuned}, epoch {epoch:g} of {params.epochs:g}: {told}")
                return {"first": next(iter(metrics.values()))}

        args = CrossEncoderTrainingArguments(
            output_dir=str(work),
            num_train_epochs=params.epochs,
            per_device_train_batch_size=params.batch_size,
            learning_rate=params.lr,
            warmup_steps=round(params.warmup * (len(left) // params.batch_size * params.epochs)),
            seed=self.seed,
            eval_strategy="epoch",
            save_strategy="epoch",
            save_total_limit=2,
            load_best_model_at_end=True,
            metric_for_best_model="first",
            dataloader_drop_last=True,
            use_cpu=model.device.type == "cpu",
            bf16=model.device.type == "cuda",
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )
        loss: type[torch.nn.Module] = losses.MSELoss if regression else losses.CrossEntropyLoss
        pairs = Dataset.from_dict({"left": left, "right": right, "label": target.tolist()})
        trainer = CrossEncoderTrainer(model, args, train_dataset=pairs, loss=loss(model), evaluator=DevScores())
        trainer.remove_callback(PrinterCallback)
        return trainer


@dataclass(frozen=True)
class CrossEncoding(ShardTask):
    """Turns pairs into shards of logits; `task` need not have its splits."""

    cross_encoder: Path
    task: PairTask
    left: Sequence[str]
    right: Sequence[str]
    folder: Path
    unit: ClassVar[str] = "pairs"

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
    size: PoolSize = AS_FIT,
) -> Path:
    """The folder with `logits.npy`, P x C float32, of a split's pairs by a cross-encoder's folder, computed if not there.

    Needs `ray.init` only when something is missing. Of a regression whose outputs are on another scale than [0, 1] a + b t
    is taken, fitted to the training scores, and said so.
    """
    left, right = pair_texts(task, split, sentences)
    parts = {
        "cross_encoder": EncoderSpec(str(cross_encoder.absolute())).identity()["source"],
        **_identity(task, {split: (left, right)}),
    }
    label = f"Cross-encoder logits, {task.name} {split}"

    def make(folder: Path, missing: list[str]) -> None:
        work = CrossEncoding(cross_encoder.absolute(), replace(task, splits={}), left, right, folder)
        gpu = default_device() == "cuda" or gpus_elsewhere(size.grow_to)
        run_pool(work, work.missing(len(left), SHARD_PAIRS), label, size=size, gpu=gpu, store=store)
        logits_PC = ShardedArray.open(folder, len(left), SHARD_PAIRS).block(0, len(left))
        if task.kind == "regression" and split == "train":
            logits_PC = _on_unit_scale(logits_PC, unit_target(task, task.splits[split].target_P), label)
        save_array(folder / LOGITS, logits_PC)
        for path in folder.glob("shard-*.npy"):
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
