"""Sentences per second of each augmentation operation that is installed, beside nlpaug's own loop.

    python benchmarks/augmentation.py [--sentences 2000] [--text FILE] [--rounds 3]
        [--marian DIR DIR] [--translated 100] [--only synonym]

Both make one copy of the same sentences in this process, on one thread, in turn, `rounds` times, each
time loaded anew.
nlpaug's loop is that of its documentation (`augmenter.augment(sentence)` for each sentence); its SynonymAug is given our
tagger and WordNet, without which it does not run, and nothing else of ours: neither seeds nor remembered synonyms.
Machines are noisy: the result is the ratio of the medians of CPU seconds.
`--text` has one sentence a line; the default is the built-in corpus, whose small vocabulary is kind to a memory of words.
The neural operations copy the first `translated` sentences only.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from distilbench.data.about import DEMONSTRATION
from distilbench.data.folder import Limits, folder_corpus
from distilbench.errors import InputError
from distilbench.prepare.augment import operations
from distilbench.prepare.augment.operation import Operation
from distilbench.prepare.augment.synonym import synonym_augmenter

Run = Callable[[Sequence[str]], object]
WARM_UP = 10
"""Sentences before each measurement."""

NLPAUG = {
    "synonym": lambda: synonym_augmenter(remembered=0),
}
"""Operation -> nlpaug's augmenter that does the same; of the neural ones there is no loop worth comparing."""


def timed(run: Callable[[], object]) -> float:
    began = time.process_time()
    run()
    return time.process_time() - began


def asked(chosen: argparse.Namespace) -> dict[str, Operation]:
    """The operations that are installed."""
    translation = "back-translation" + (f"@{'+'.join(chosen.marian)}" if chosen.marian else "")
    wanted = {name.partition("@")[0]: operations([name])[0] for name in (*NLPAUG, translation)}
    found = {}
    for name, operation in wanted.items():
        if chosen.only and name not in chosen.only.split(","):
            continue
        try:
            operation.check()
        except InputError as missing:
            print(f"left out: {missing}")
        else:
            found[name] = operation
    return found


def ways(name: str, operation: Operation) -> dict[str, Callable[[], Run]]:
    """What is compared, to be loaded anew in each round: a memory of the round before would be no merit."""

    def ours() -> Run:
        copies = operation.load()
        return lambda sentences: copies(sentences, 0)

    def nlpaugs() -> Run:
        augmenter = NLPAUG[name]()
        return lambda sentences: [augmenter.augment(sentence) for sentence in sentences]

    return {"distilbench": ours, "nlpaug": nlpaugs} if name in NLPAUG else {"distilbench": ours}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sentences", type=int, default=2000)
    parser.add_argument("--text", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--marian", nargs=2)
    parser.add_argument("--translated", type=int, default=100)
    parser.add_argument("--only", help="names of operations, with commas between")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    lines = chosen.text.read_text().splitlines() if chosen.text else folder_corpus(DEMONSTRATION, Limits()).sentences
    sentences = [line for line in dict.fromkeys(lines) if line.strip()][: chosen.sentences]
    told: dict[str, object] = {"sentences": len(sentences), "rounds": chosen.rounds}
    for name, operation in asked(chosen).items():
        few = sentences if name in NLPAUG else sentences[: chosen.translated]
        seconds: dict[str, list[float]] = {}
        for _ in range(chosen.rounds):
            for way, make in ways(name, operation).items():
                run = make()
                run(few[:WARM_UP])
                seconds.setdefault(way, []).append(timed(lambda run=run, few=few: run(few)))
        medians = {way: statistics.median(taken) for way, taken in seconds.items()}
        row: dict[str, float] = {f"{way}_sentences_per_cpu_s": len(few) / taken for way, taken in medians.items()}
        if "nlpaug" in medians:
            row["speed_ratio_to_nlpaug"] = medians["nlpaug"] / medians["distilbench"]
        told[name] = row
    print(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
