"""Encoding throughput beside `SentenceTransformer.encode`, on the same sentences, in the same run.

    python benchmarks/encoding.py [--teacher NAME] [--sentences 2000] [--rounds 3]

Both encode the same sentences with the same model on one thread of this process, in turn, `rounds` times after one warm-up
each. Machines are noisy: the ratio of the medians is the result, the rates are not.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

import numpy as np
import torch

from distilbench.data.builtin import builtin_corpus
from distilbench.encoder import EncoderSpec, default_device, encode


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--teacher", default="all-MiniLM-L6-v2")
    parser.add_argument("--sentences", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    model = EncoderSpec(chosen.teacher).load(default_device())
    sentences = list(builtin_corpus().sentences[: chosen.sentences])
    ways = {
        "distilbench": lambda: encode(model, sentences),
        "SentenceTransformer.encode": lambda: model.encode(sentences, show_progress_bar=False),
    }
    vectors = {name: np.asarray(run()) for name, run in ways.items()}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(chosen.rounds):
        for name, run in ways.items():
            began = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - began)
    ours, theirs = (statistics.median(seconds[name]) for name in ways)
    print(
        json.dumps(
            {
                "teacher": chosen.teacher,
                "device": default_device(),
                "sentences": len(sentences),
                "sentences_per_s": {name: len(sentences) / statistics.median(s) for name, s in seconds.items()},
                "speed_ratio_to_SentenceTransformer.encode": theirs / ours,
                "largest_difference_of_a_component": float(np.abs(np.subtract(*vectors.values())).max()),
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
