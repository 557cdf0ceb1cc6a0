"""Training throughput beside `SentenceTransformerTrainer`: the same student, sentences and targets, in the same run.

    python benchmarks/training.py [--data DIR] [--student half] [--steps 40] [--rounds 3] [--batch 64] [--dim 128]
                                  [--dropout] [--train-embeddings] [--threads 1] [--bf16]

HPD's loss (squared distance to the teacher's PCA), the teacher's forward in neither. Both train the same parameters with the
same dropout (a sweep's defaults: none, frozen embeddings), weight decay and clipping, draw random batches and run in the
precision of this machine's device, on the same threads, with fused AdamW. A second peer is the same trainer with batches of
similar length (the length groups of transformers), which are no longer drawn at random. With --bf16 our loop trains once
more, in bfloat16.

Each round trains all from the start for `steps` steps, of which the first five are warm-up and not timed. On a CPU with one
thread processor time is taken, which other work on the machine disturbs less; otherwise wall time. The ratios of a round's
times are the result, the rates are not. `slots_per_token` says what padding costs: 1 is none. `of_peak` is the matrix
products (forward and backward, of real tokens; attention's not counted) in a second beside those of `torch.matmul`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from distilbench.data.about import DEMONSTRATION
from distilbench.data.folder import Limits, folder_corpus
from distilbench.encoders.encoder import EncoderSpec, default_device
from distilbench.encoders.encoding import token_ids
from distilbench.methods.hpd import HPD
from distilbench.prepare.encode import check_bf16
from distilbench.prepare.pca import fit_pca
from distilbench.prepare.prepared import Prepared
from distilbench.prepare.tokens import Tokens
from distilbench.storage.arrays import ShardedArray, save_array, shard_name
from distilbench.training.loop import Trainer

WARM = 5
CLOCK = time.perf_counter
SENTENCES = 20_000
OURS = "distilbench"
IN_BF16 = "distilbench in bfloat16"
PEERS = {"SentenceTransformerTrainer": False, "SentenceTransformerTrainer, length groups": True}


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


@dataclass
class Run:
    """What the steps after the warm-up took: seconds, mean loss, tokens, and slots for tokens that the encoder computed."""

    seconds: float
    loss: float
    tokens: int
    slots: int
    flop: float


class Counter:
    """Counts the tokens that reach a student's encoder."""

    def __init__(self, student: Any, pad: int) -> None:
        self.tokens = self.slots = 0
        self.encoder, self.pad = student[0].model, pad
        # Not of the encoder: sentence-transformers calls its `forward`, which runs no hooks.
        self.encoder.embeddings.register_forward_pre_hook(self._count, with_kwargs=True)

    def _count(self, module: Any, positional: Any, named: dict[str, Any]) -> None:
        self.slots += named["input_ids"].numel()
        self.tokens += int((named["input_ids"] != self.pad).sum())

    def begin(self) -> None:
        """Forget the warm-up."""
        self.tokens = self.slots = 0

    def run(self, seconds: float, loss: float) -> Run:
        """All since `begin`."""
        linear = [m.weight for m in self.encoder.encoder.modules() if isinstance(m, torch.nn.Linear)]
        per_token = 6 * sum(
            w.numel() for w in linear
        )  # multiply and add: the output, and the gradients of both factors
        if not any(p.requires_grad for p in self.encoder.embeddings.parameters()):
            per_token -= 2 * sum(w.numel() for w in linear[:3])  # nothing needs the gradient of the first input
        return Run(seconds, loss, self.tokens, self.slots, per_token * self.tokens)


def ours(prepared: Prepared, params: dict[str, Any], steps: int, device: str) -> Run:
    """Train with our loop."""
    torch.manual_seed(0)
    method = HPD(HPD.params_type.model_validate(params), prepared, device)
    trainer, counter = Trainer(method, 0, steps), Counter(method.student, method.pad)
    trainer.train_until(WARM)
    counter.begin()
    began = CLOCK()
    loss = trainer.train_until(steps)
    return counter.run(CLOCK() - began, loss)


def theirs(
    prepared: Prepared, sentences: list[str], params: dict[str, Any], steps: int, device: str, length_groups: bool
) -> Run:
    """The same with SentenceTransformerTrainer and its MSELoss (a mean over components: times d for the same scale)."""
    from datasets import Dataset
    from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
    from sentence_transformers.base.sampler import DefaultBatchSampler
    from sentence_transformers.sentence_transformer.losses import MSELoss
    from transformers import TrainerCallback
    from transformers.trainer_pt_utils import LengthGroupedSampler

    torch.manual_seed(0)
    assert prepared.tokens is not None
    lengths = prepared.tokens.lengths_of(prepared.train).tolist()
    method = HPD(HPD.params_type.model_validate(params), prepared, device)
    model = method.student
    assert method.projection is not None
    model.append(method.projection)
    if not params["dropout"]:
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
    counter = Counter(model, method.pad)

    class Clock(TrainerCallback):  # type: ignore[misc]
        began = ended = 0.0

        def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            if state.global_step == WARM:
                counter.begin()
                self.began = CLOCK()
            self.ended = CLOCK()

    class LengthGroups(DefaultBatchSampler):  # type: ignore[misc]
        def __init__(self, dataset: Any, batch_size: int, drop_last: bool, **more: Any) -> None:
            grouped = LengthGroupedSampler(batch_size, lengths=lengths, generator=more["generator"])
            super().__init__(grouped, batch_size=batch_size, drop_last=drop_last)

    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        trainer = SentenceTransformerTrainer(
            model=model,
            args=SentenceTransformerTrainingArguments(
                output_dir=folder,
                max_steps=steps,
                per_device_train_batch_size=params["batch_size"],
                learning_rate=params["lr"],
                lr_scheduler_type="constant",
                weight_decay=0.01,
                max_grad_norm=1.0,
                bf16=device == "cuda",
                optim="adamw_torch_fused",
                save_strategy="no",
                logging_steps=steps,
                report_to=[],
                disable_tqdm=True,
                use_cpu=device == "cpu",
                **({"batch_sampler": LengthGroups} if length_groups else {}),
            ),
            train_dataset=Dataset.from_dict({"sentence": sentences, "label": list(method.targets_Nd)}),
            loss=MSELoss(model),
            callbacks=[clock],
        )
        logged = trainer.train()
    return counter.run(clock.ended - clock.began, float(logged.training_loss) * params["output_dim"])


def peak(rows: int, inner: int, columns: int, device: str) -> float:
    """The most floating-point operations a second of `torch.matmul` in float32 in ten products."""
    a, b = torch.randn(rows, inner, device=device), torch.randn(inner, columns, device=device)
    best = 0.0
    for _ in range(11):
        began = CLOCK()
        (a @ b).sum().item()
        best = max(best, 2 * rows * inner * columns / (CLOCK() - began))
    return best


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
    parser.add_argument("--dropout", action="store_true", help="the encoder's dropout acts")
    parser.add_argument("--train-embeddings", action="store_true", help="the embeddings are trained too")
    parser.add_argument("--bf16", action="store_true", help="our loop once more, in bfloat16")
    chosen = parser.parse_args()
    if chosen.bf16:
        check_bf16()
    torch.set_num_threads(chosen.threads)
    global CLOCK
    device = default_device()
    if device == "cpu" and chosen.threads == 1:
        CLOCK = time.process_time
    corpus = folder_corpus(chosen.data or DEMONSTRATION, Limits())
    sentences = [corpus.sentences[i] for i in corpus.train[:SENTENCES]]
    params = {
        "output_dim": chosen.dim,
        "lr": 1e-4,
        "batch_size": chosen.batch,
        "epochs": 1000,
        "decay": False,
        "decay_all": False,
        "dropout": chosen.dropout,
        "freeze_embeddings": not chosen.train_embeddings,
    }
    peaks: list[float] = []
    runs: dict[str, list[Run]] = {}
    with tempfile.TemporaryDirectory() as folder:
        prepared = prepared_inputs(Path(folder), sentences, EncoderSpec(chosen.teacher), chosen.student)
        for _ in range(chosen.rounds):
            peaks.append(peak(1024, 1024, 1024, device))
            runs.setdefault(OURS, []).append(ours(prepared, params, chosen.steps, device))
            if chosen.bf16:
                runs.setdefault(IN_BF16, []).append(
                    ours(prepared, params | {"precision": "bf16"}, chosen.steps, device)
                )
            for name, grouped in PEERS.items():
                run = theirs(prepared, sentences, params, chosen.steps, device, grouped)
                runs.setdefault(name, []).append(run)
    timed = (chosen.steps - WARM) * chosen.batch
    assert prepared.tokens is not None

    def ratios(name: str) -> list[float]:
        return sorted(b.seconds / a.seconds for a, b in zip(runs[OURS], runs[name], strict=True))

    print(
        json.dumps(
            {
                "device": device,
                "threads": chosen.threads,
                "clock": CLOCK.__name__,
                "student": f"{chosen.teacher} {chosen.student}",
                "batch": chosen.batch,
                "dropout": chosen.dropout,
                "embeddings_trained": chosen.train_embeddings,
                "mean_tokens": float(prepared.tokens.lengths_of(prepared.train).mean()),
                "sentences_per_s": {n: timed / statistics.median(r.seconds for r in of) for n, of in runs.items()},
                "tokens_per_s": {n: statistics.median(r.tokens / r.seconds for r in of) for n, of in runs.items()},
                "slots_per_token": {n: of[0].slots / of[0].tokens for n, of in runs.items()},
                "mean_loss": {n: of[0].loss for n, of in runs.items()},
                "peak_gflop_per_s": statistics.median(peaks) / 1e9,
                "of_peak": {
                    n: statistics.median(r.flop / r.seconds / top for r, top in zip(of, peaks, strict=True))
                    for n, of in runs.items()
                },
                "speed_ratio_min_median_max": {
                    n: [min(ratios(n)), statistics.median(ratios(n)), max(ratios(n))] for n in runs if n != OURS
                },
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
