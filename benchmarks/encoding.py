"""Encoding throughput beside `SentenceTransformer.encode`, on the same sentences, in the same run.

    python benchmarks/encoding.py [--teacher NAME] [--data FILE.tsv] [--sentences 2000] [--rounds 3] [--backends torch bf16]

`SentenceTransformer.encode` gets its best batch size of 8, 16, 32, 64 and 128, found first. Then all encode the same
sentences with the same weights on one thread of this process, in turn, `rounds` times. Machines are noisy and shared: the
result is the ratio of the medians of processor time; the rates and the wall times are not.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import os
import random
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, get_args

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch and the tokenizer start their threads
os.environ.setdefault("RAYON_NUM_THREADS", "1")

import numpy as np
import torch

from distilbench.choices import Backend
from distilbench.data.about import DEMONSTRATION
from distilbench.data.folder import Limits, folder_corpus
from distilbench.encoders.encoder import EncoderSpec, default_device
from distilbench.encoders.encoding import encode
from distilbench.prepare.encode import check_bf16

BATCH_SIZES = (8, 16, 32, 64, 128)
THEIRS = "SentenceTransformer.encode"


def read_sentences(path: Path | None, count: int) -> list[str]:
    """`count` sentences drawn from the column `text` of a TSV file (may be gzipped), or of the built-in corpus."""
    if path is None:
        rows = list(folder_corpus(DEMONSTRATION, Limits()).sentences)
    else:
        opened = gzip.open if path.suffix == ".gz" else open
        with opened(path, "rt", encoding="utf-8", newline="") as file:
            rows = [row["text"] for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)]
    rows = list(dict.fromkeys(rows))
    return random.Random(0).sample(rows, min(count, len(rows)))


def timed(run: Callable[[], Any]) -> tuple[float, float]:
    """Processor seconds of this process and wall seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    run()
    return time.process_time() - cpu, time.perf_counter() - wall


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--teacher", default="all-MiniLM-L6-v2")
    parser.add_argument("--data", type=Path, help="TSV file with a column text; the built-in corpus without it")
    parser.add_argument("--sentences", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--backends", nargs="+", choices=get_args(Backend), default=["torch"])
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    spec, device = EncoderSpec(chosen.teacher), default_device()
    model = spec.load(device)
    sentences = read_sentences(chosen.data, chosen.sentences)

    def theirs(batch_size: int) -> Any:
        return model.encode(sentences, batch_size=batch_size, show_progress_bar=False)

    theirs(32)  # warm-up
    search = dict.fromkeys(BATCH_SIZES, float("inf"))
    for size in (*BATCH_SIZES, *BATCH_SIZES):
        search[size] = min(search[size], timed(partial(theirs, size))[0])
    best = min(search, key=search.__getitem__)
    models = {name: model for name in ("torch", "bf16") if name in chosen.backends}
    if "bf16" in models and device == "cpu":
        check_bf16()
    ways: dict[str, Callable[[], Any]] = {THEIRS: partial(theirs, best)}
    for name, ours in models.items():
        ways[f"distilbench {name}"] = partial(encode, ours, sentences, prompt=spec.prompt, bf16=name == "bf16")
    vectors = {name: np.asarray(run()) for name, run in ways.items()}  # and warm-up
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(chosen.rounds):
        for name, run in ways.items():
            seconds[name].append(timed(run))
    cpu = {name: statistics.median(c for c, _ in pairs) for name, pairs in seconds.items()}
    wall = {name: statistics.median(w for _, w in pairs) for name, pairs in seconds.items()}
    lengths = np.linalg.norm(vectors[THEIRS], axis=1, keepdims=True)
    print(
        json.dumps(
            {
                "teacher": chosen.teacher,
                "data": chosen.data.name if chosen.data else "built-in corpus",
                "device": device,
                "sentences": len(sentences),
                "rounds": chosen.rounds,
                "their_processor_s_by_batch_size": search,
                "their_batch_size": best,
                "sentences_per_processor_s": {name: len(sentences) / s for name, s in cpu.items()},
                "sentences_per_wall_s": {name: len(sentences) / s for name, s in wall.items()},
                "speed_ratio_processor_time": {name: cpu[THEIRS] / s for name, s in cpu.items()},
                "speed_ratio_wall_time": {name: wall[THEIRS] / s for name, s in wall.items()},
                "largest_difference_of_a_component": {
                    name: float((np.abs(v - vectors[THEIRS]) / lengths).max()) for name, v in vectors.items()
                },
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
