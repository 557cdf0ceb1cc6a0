"""Training throughput beside `SentenceTransformerTrainer`: the same student, sentences and targets, in the same run.

    python benchmarks/training.py [--data DIR] [--steps 40] [--rounds 3] [--batch 64] [--dim 128]

HPD's loss (squared distance to the teacher's PCA), the teacher's forward in neither. Both draw random batches and run in the
precision of this machine's device, on the same threads, with fused AdamW. Each round trains both from the start for `steps`
steps, of which the first five are warm-up and not timed. On a CPU with one thread processor time is taken, which other work
on the machine disturbs less; otherwise wall time. The ratio of the medians is the result, the rates are not.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from distilbench.data.builtin import builtin_corpus
from distilbench.data.folder import Limits, folder_corpus
from distilbench.encoder import EncoderSpec, default_device, token_ids
from distilbench.methods.hpd import Trainable
from distilbench.prepare.pca import fit_pca
from distilbench.prepare.prepared import Prepared
from distilbench.prepare.tokens import Tokens
from distilbench.store import ShardedArray, save_array, shard_name
from distilbench.training.loop import Trainer

WARM = 5
CLOCK = time.perf_counter
SENTENCES = 20_000


def prepared_inputs(folder: Path, sentences: list[str], teacher: EncoderSpec, student: str) -> Prepared:
    """Targets are random vectors: what is timed does not depend on their values, and no teacher has to run."""
    vectors = np.random.default_rng(0).standard_normal((len(sentences), teacher.width())).astype(np.float32)
    save_array(folder / shard_name(0), vectors)
    sharded = ShardedArray(folder, *vectors.shape, len(vectors))
    ids = token_ids(teacher.load(), sentences)
    offsets = np.cumsum([0, *(len(i) for i in ids)])
    tokens = Tokens(np.concatenate([np.array(i, dtype=np.int32) for i in ids]), offsets)
    rows = np.arange(len(sentences))
    pairs = np.empty((0, 2), dtype=np.int64)
    return Prepared(teacher, student, sharded, fit_pca(sharded, rows), tokens, rows, pairs, ())


def ours(prepared: Prepared, params: dict[str, Any], steps: int, device: str) -> tuple[float, float]:
    """Seconds of the timed steps, and their mean loss."""
    torch.manual_seed(0)
    trainer = Trainer(Trainable(Trainable.params_type.model_validate(params), prepared, device), 0, steps)
    trainer.train_until(WARM)
    began = CLOCK()
    loss = trainer.train_until(steps)
    return CLOCK() - began, loss


def theirs(
    prepared: Prepared, sentences: list[str], params: dict[str, Any], steps: int, device: str
) -> tuple[float, float]:
    """The same with SentenceTransformerTrainer and its MSELoss (a mean over components: times d for the same scale)."""
    from datasets import Dataset
    from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
    from sentence_transformers.sentence_transformer.losses import MSELoss
    from transformers import TrainerCallback

    torch.manual_seed(0)
    method = Trainable(Trainable.params_type.model_validate(params), prepared, device)
    model = method.student
    model.append(method.projection)

    class Clock(TrainerCallback):  # type: ignore[misc]
        began = ended = 0.0

        def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            if state.global_step == WARM:
                self.began = CLOCK()
            self.ended = CLOCK()

    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        trainer = SentenceTransformerTrainer(
            model=model,
            args=SentenceTransformerTrainingArguments(
                output_dir=folder,
                max_steps=steps,
                per_device_train_batch_size=params["batch_size"],
                learning_rate=params["lr"],
                bf16=device == "cuda",
                optim="adamw_torch_fused",
                save_strategy="no",
                logging_steps=steps,
                report_to=[],
                disable_tqdm=True,
                use_cpu=device == "cpu",
            ),
            train_dataset=Dataset.from_dict({"sentence": sentences, "label": list(method.targets_Nd)}),
            loss=MSELoss(model),
            callbacks=[clock],
        )
        logged = trainer.train()
    return clock.ended - clock.began, float(logged.training_loss) * params["output_dim"]


def main() -> None:
    """Print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--teacher", default="all-MiniLM-L6-v2")
    parser.add_argument("--student", default="half")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--threads", type=int, default=1)
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    global CLOCK
    if default_device() == "cpu" and chosen.threads == 1:
        CLOCK = time.process_time
    corpus = folder_corpus(chosen.data, Limits()) if chosen.data else builtin_corpus()
    sentences = [corpus.sentences[i] for i in corpus.train[:SENTENCES]]
    device = default_device()
    params = {"output_dim": chosen.dim, "lr": 1e-4, "batch_size": chosen.batch, "epochs": 1000, "decay": False}
    with tempfile.TemporaryDirectory() as folder:
        prepared = prepared_inputs(Path(folder), sentences, EncoderSpec(chosen.teacher), chosen.student)
        times: dict[str, list[float]] = {"distilbench": [], "SentenceTransformerTrainer": []}
        losses: dict[str, float] = {}
        for _ in range(chosen.rounds):
            for name in times:
                run = (prepared, params) if name == "distilbench" else (prepared, sentences, params)
                seconds, losses[name] = (ours if name == "distilbench" else theirs)(*run, chosen.steps, device)
                times[name].append(seconds)
    timed = (chosen.steps - WARM) * chosen.batch
    assert prepared.tokens is not None
    print(
        json.dumps(
            {
                "device": device,
                "threads": chosen.threads,
                "clock": CLOCK.__name__,
                "student": f"{chosen.teacher} {chosen.student}",
                "batch": chosen.batch,
                "mean_tokens": float(prepared.tokens.lengths_of(prepared.train).mean()),
                "sentences_per_s": {name: timed / statistics.median(s) for name, s in times.items()},
                "mean_loss": losses,
                "speed_ratio_to_SentenceTransformerTrainer": statistics.median(times["SentenceTransformerTrainer"])
                / statistics.median(times["distilbench"]),
                "ratio_of_each_round": [b / a for a, b in zip(*times.values(), strict=True)],
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
