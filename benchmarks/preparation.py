"""Preparation on Ray Data: what Ray costs, how it scales, and how much memory a large corpus takes.

    python benchmarks/preparation.py overhead [--sentences 50000] [--teacher NAME]
    python benchmarks/preparation.py memory   [--sentences 1000000]
    python benchmarks/preparation.py augment  [--sentences 100000]

`overhead` encodes the same sentences into the same shard files three ways, in turn in this run: a bare loop in one process,
Ray Data with one worker, Ray Data with two. All three load the model anew, with one torch thread each; Ray runs already.
`memory` prepares random text with a one-layer encoder (distinct sentences, embeddings, PCA, tokens) and watches the peaks of
anonymous memory (pages of mapped files are the kernel's to drop) and Ray's object store.
`augment` copies the same sentences with nlpaug's loop in a process of its own, and on Ray Data with one worker and with two,
each from loading to the last copy on disk; Ray runs already.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from rich.console import Console

from distilbench.cluster.resources import ray_cluster
from distilbench.data.about import DEMONSTRATION
from distilbench.data.corpus import CorpusBuilder
from distilbench.data.folder import Limits, folder_corpus
from distilbench.data.sentences import CorpusText, SentenceFile, sentences_artifact
from distilbench.encoders.encoder import EncoderSpec
from distilbench.encoders.student import load_student
from distilbench.prepare.augment import operations
from distilbench.prepare.copies import augmented_corpus
from distilbench.prepare.encode import SHARD_ROWS, CorpusEncoding, TeacherEncoding
from distilbench.settings.commands import PrepareSettings
from distilbench.settings.place import PoolSize
from distilbench.storage.arrays import shard_ranges
from distilbench.storage.store import ArtifactStore

BARE = """
import pickle, sys
import torch
torch.set_num_threads(1)
task, shards = pickle.load(open(sys.argv[1], "rb"))
make = task.load()
for number, (start, stop) in enumerate(shards):
    make(number, start, stop)
"""


def overhead(sentences: int, teacher: str, rounds: int) -> dict[str, object]:
    text = many_sentences(sentences)
    spec = EncoderSpec(teacher).absolute()
    seconds: dict[str, list[float]] = {"bare loop": [], "one worker": [], "two workers": []}
    with tempfile.TemporaryDirectory() as folder, ray_cluster(None, 2, dashboard=False):
        root = Path(folder)
        # One shard first: Ray starts its workers' processes when they are first asked for.
        CorpusEncoding(spec, ArtifactStore(root / "warm"), "warm-up").vectors(CorpusText(text[:512], "warm"))
        for number in range(rounds):
            for name in seconds:
                store = ArtifactStore(root / f"{name} {number}".replace(" ", "-"))
                began = time.perf_counter()
                if name == "bare loop":
                    bare(sentences_artifact(text, "all", store), spec, store.root)
                else:
                    workers = 1 if name == "one worker" else 2
                    CorpusEncoding(spec, store, name, size=PoolSize(workers)).vectors(CorpusText(text, "all"))
                seconds[name].append(time.perf_counter() - began)
    best = {name: min(times) for name, times in seconds.items()}
    return {
        "teacher": spec.title,
        "sentences": sentences,
        "seconds": seconds,
        "one worker to bare loop": best["one worker"] / best["bare loop"],
        "one worker to two": best["one worker"] / best["two workers"],
    }


def bare(sentences: SentenceFile, spec: EncoderSpec, root: Path) -> None:
    import pickle

    task = TeacherEncoding(spec, sentences, root, "cpu", "float16")
    shards = shard_ranges(len(sentences), SHARD_ROWS["cpu"])
    (root / "task").write_bytes(pickle.dumps((task, shards)))
    subprocess.run([sys.executable, "-c", BARE, str(root / "task")], check=True)


NLPAUG = """
import sys
from pathlib import Path
from distilbench.data.sentences import SentenceFile
from distilbench.prepare.augment.synonym import synonym_augmenter
augmenter = synonym_augmenter(remembered=0)
copies = [next(iter(augmenter.augment(sentence)), "") for sentence in SentenceFile(Path(sys.argv[1]))]
Path(sys.argv[2]).write_text("\\n".join(copies))
"""


def augment(sentences: int, rounds: int) -> dict[str, object]:
    text = many_sentences(sentences)
    builder = CorpusBuilder("benchmark")
    builder.train_on(text)
    corpus, small = builder.build(), CorpusBuilder("warm")
    small.train_on(text[:1000])
    chosen = operations(["synonym"])
    seconds: dict[str, list[float]] = {"nlpaug's loop": [], "one worker": [], "two workers": []}
    with tempfile.TemporaryDirectory() as folder, ray_cluster(None, 2, dashboard=False):
        root = Path(folder)
        (path,) = sentences_artifact(text, "all", ArtifactStore(root)).paths
        augmented_corpus(small.build(), chosen, 0, ArtifactStore(root / "warm"))
        for number in range(rounds):
            for name in seconds:
                began = time.perf_counter()
                if name == "nlpaug's loop":
                    command = [sys.executable, "-c", NLPAUG, str(path), str(root / "copies.txt")]
                    subprocess.run(command, check=True)
                else:
                    store, size = (
                        ArtifactStore(root / f"{name[:3]}{number}"),
                        PoolSize(1 if name == "one worker" else 2),
                    )
                    augmented_corpus(corpus, chosen, 0, store, size)
                seconds[name].append(time.perf_counter() - began)
    best = {name: min(times) for name, times in seconds.items()}
    return {
        "sentences": sentences,
        "seconds": seconds,
        "one worker to nlpaug's loop": best["nlpaug's loop"] / best["one worker"],
        "two workers to nlpaug's loop": best["nlpaug's loop"] / best["two workers"],
    }


def many_sentences(count: int) -> tuple[str, ...]:
    """The built-in corpus's sentences, made more by a number at their end."""
    base = folder_corpus(DEMONSTRATION, Limits()).sentences
    return tuple(f"{base[i % len(base)]} {i // len(base)}" for i in range(count))


def memory(sentences: int) -> dict[str, object]:
    from distilbench.commands.prepare import prepare

    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        load_student("layers:0", EncoderSpec("all-MiniLM-L6-v2"), "cpu").save(str(root / "one-layer"))
        rng = random.Random(0)
        words = sorted({word for s in folder_corpus(DEMONSTRATION, Limits()).sentences for word in s.split()})
        with (root / "text.txt").open("w") as file:
            for _ in range(sentences):
                file.write(" ".join(rng.choices(words, k=rng.randint(3, 12))) + "\n")
        watch = Watch()
        settings = PrepareSettings(
            text=(str(root / "text.txt"),),
            max_sentences=0,
            teacher=str(root / "one-layer"),
            student="layers:0",
            store=root / "store",
            cpus=2,
            dashboard=False,
        )
        began = time.perf_counter()
        with ray_cluster(None, 2, dashboard=False):
            threading.Thread(target=watch.run, daemon=True).start()
            found = prepare(settings, Console())
            stats = watch.object_store()
        return {
            "sentences": found["sentences"],
            "text_MB": (root / "text.txt").stat().st_size / 1e6,
            "artifacts_MB": {name: a["bytes"] / 1e6 for name, a in found["artifacts"].items()},
            "seconds": time.perf_counter() - began,
            "driver_MB": {"before": watch.first, "peak": watch.driver},
            "largest_worker_MB": watch.worker,
            "object_store": stats,
        }


class Watch:
    """Peaks of anonymous memory, in MB, of this process and of Ray's largest worker; and of Ray's object store."""

    def __init__(self) -> None:
        self.first = self.driver = _anonymous("self")
        self.worker = 0.0
        self.store = 0

    def run(self) -> None:
        while True:
            self.driver = max(self.driver, _anonymous("self"))
            for folder in Path("/proc").glob("[0-9]*"):
                try:
                    if (folder / "cmdline").read_bytes().startswith(b"ray::"):
                        self.worker = max(self.worker, _anonymous(folder.name))
                except (OSError, StopIteration):
                    continue
            try:
                self.store = max(self.store, self._stats().object_store_bytes_used)
            except Exception:
                return  # Ray has ended
            time.sleep(1)

    def object_store(self) -> dict[str, float]:
        stats = self._stats()
        return {"peak_MB": self.store / 1e6, "spilled_MB": stats.spilled_bytes_total / 1e6}

    def _stats(self):
        import ray
        from ray._private.internal_api import node_stats

        (node,) = [n for n in ray.nodes() if n["Alive"]]
        return node_stats(node["NodeManagerAddress"], node["NodeManagerPort"]).store_stats


def _anonymous(process: str) -> float:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("RssAnon")).split()[1]) / 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("overhead", "memory", "augment"))
    parser.add_argument("--sentences", type=int)
    parser.add_argument("--teacher", default="all-MiniLM-L6-v2")
    parser.add_argument("--rounds", type=int, default=1)
    chosen = parser.parse_args()
    if chosen.what == "overhead":
        found = overhead(chosen.sentences or 50_000, chosen.teacher, chosen.rounds)
    elif chosen.what == "augment":
        found = augment(chosen.sentences or 100_000, chosen.rounds)
    else:
        found = memory(chosen.sentences or 1_000_000)
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
