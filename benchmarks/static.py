"""Static students beside their teacher, model2vec and tokenlearn: how fast they read, how fast they are trained, how good.

    python benchmarks/static.py --teacher FOLDER --student FOLDER [--sentences FILE] [--tokenlearn VECTORS.npy] [--sts DIR]

`--student` is an exported static student. `--sentences` has a sentence a line (else the built-in corpus). `model2vec` is
distilled from the same teacher at the student's width; with the teacher's vectors of the sentences (`--tokenlearn`, N x D)
tokenlearn trains that model on the same text. Both are optional packages; without them their rows are left out.

Every reader is timed on one thread, from text to vectors, tokenising included, in rounds that take turns, so that what else
the machine does meets all of them; the median round counts, in the process's own time. The quality is the mean Spearman
x 100 of STS12 to STS14 and the test set of STS-B, in `--sts` (files as data/sts has them).
"""

from __future__ import annotations

import os

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import importlib.util
import json
import statistics
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from distilbench.data.builtin import builtin_corpus
from distilbench.encoders.encoder import EncoderSpec, encode
from distilbench.evaluation.sts import spearman

GROUPS = ("STS12", "STS13", "STS14", "STSB.test")
TEACHER_READS = 512
"""Sentences of a round of the teacher, which is hundreds of times slower."""
Reader = Callable[[Sequence[str]], NDArray[Any]]


def main() -> None:
    arguments = parse()
    torch.set_num_threads(1)
    texts = sentences(arguments.sentences, arguments.count)
    teacher, student = EncoderSpec(arguments.teacher).load(), EncoderSpec(arguments.student).load()
    readers: dict[str, Reader] = {
        "teacher": lambda given: encode(teacher, given),
        "static student": lambda given: encode(student, given),
        "static student, sentence-transformers' defaults": lambda given: student.encode(list(given)),
    }
    bytes_on_disk = {"teacher": weights_bytes(arguments.teacher), "static student": weights_bytes(arguments.student)}
    took: dict[str, float] = {}
    if importlib.util.find_spec("model2vec"):
        from model2vec import StaticModel
        from model2vec.distill import distill

        began = time.perf_counter()
        distilled = distill(
            arguments.teacher, pca_dims=student.get_embedding_dimension(), device="cpu", quantize_to="float32"
        )
        took["model2vec.distill"] = time.perf_counter() - began
        readers["model2vec.distill"] = reader_of(distilled)
        readers["static student in model2vec"] = reader_of(StaticModel.from_pretrained(arguments.student))
        if arguments.tokenlearn and importlib.util.find_spec("tokenlearn"):
            from tokenlearn.train import train_model

            vectors_ND = np.load(arguments.tokenlearn, allow_pickle=False)[: len(texts)].astype(np.float32)
            began = time.perf_counter()
            readers["tokenlearn"] = reader_of(train_model(distilled, list(texts), vectors_ND))
            took["tokenlearn"] = time.perf_counter() - began
    speeds = timed(readers, texts, arguments.rounds)
    table = []
    for name, reader in readers.items():
        row = {"encoder": name, "sentences_per_second": round(speeds[name])}
        row |= {"times_teacher": round(speeds[name] / speeds["teacher"], 1)}
        row |= {"sts": round(float(np.mean(quality(reader, arguments.sts))), 2)} if arguments.sts else {}
        row |= {"seconds_to_make": round(took[name], 1)} if name in took else {}
        row |= {"bytes": bytes_on_disk[name]} if name in bytes_on_disk else {}
        table.append(row)
    print(json.dumps({"threads": 1, "sentences": len(texts), "rows": table}, indent=1))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--teacher", default="all-MiniLM-L6-v2")
    parser.add_argument("--student", required=True)
    parser.add_argument("--sentences", type=Path)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--tokenlearn", type=Path)
    parser.add_argument("--sts", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    return parser.parse_args()


def sentences(file: Path | None, count: int) -> list[str]:
    if file is None:
        return list(builtin_corpus(count).sentences[:count])
    return [line.split("\t")[0] for line in file.read_text(encoding="utf-8").splitlines()[:count]]


def reader_of(model: Any) -> Reader:
    return lambda given: model.encode(list(given), use_multiprocessing=False)


def weights_bytes(folder: str) -> int:
    path = EncoderSpec(folder).folder()
    assert path is not None
    return sum(file.stat().st_size for file in path.rglob("*.safetensors"))


def timed(
    readers: dict[str, Reader], texts: Sequence[str], rounds: int, slow: Collection[str] = ("teacher",)
) -> dict[str, float]:
    """Sentences a second of each, in the process's own time; the `slow` ones read the first `TEACHER_READS`."""
    seconds: dict[str, list[float]] = {name: [] for name in readers}
    reads = {name: texts[:TEACHER_READS] if name in slow else texts for name in readers}
    for round_number in range(rounds + 1):
        for name, reader in readers.items():
            began = time.process_time()
            reader(reads[name])
            if round_number:  # the first one warms up
                seconds[name].append(time.process_time() - began)
    return {name: len(reads[name]) / statistics.median(taken) for name, taken in seconds.items()}


def quality(reader: Reader, folder: Path, groups: Sequence[str] = GROUPS) -> list[float]:
    """Spearman x 100 of each group, all its subsets together, cosine of raw text."""
    scores = []
    for group in groups:
        rows = [row for file in sorted(folder.glob(f"{group}*.tsv")) for row in read_pairs(file)]
        left, right = (reader([row[side] for row in rows]) for side in (0, 1))
        left, right = (v / np.maximum(np.linalg.norm(v, axis=1, keepdims=True), 1e-12) for v in (left, right))
        scores.append(spearman((left * right).sum(axis=1), np.array([row[2] for row in rows])))
    return scores


def read_pairs(file: Path) -> list[tuple[str, str, float]]:
    lines = [line.split("\t") for line in file.read_text(encoding="utf-8").rstrip("\n").split("\n")]
    columns = [lines[0].index(name) for name in ("sentence1", "sentence2", "score")]
    return [(line[columns[0]], line[columns[1]], float(line[columns[2]])) for line in lines[1:]]


if __name__ == "__main__":
    main()
