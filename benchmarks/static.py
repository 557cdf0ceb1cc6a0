"""Static students beside their teacher, model2vec and tokenlearn: how good, how fast they read, how long they are trained.

    python benchmarks/static.py --data DIR --out OUT [--store STORE] [--beside FOLDER] [--step train|peers|measure]

Three steps, all of them unless some are named. What OUT has is not made again, so a command that was interrupted is repeated
as it is; OUT lies outside of the repository.

train    `search_spaces/studies/static.yaml` with `--seeds` seeds, on DIR's unlabelled sentences (OUT/runs); a training that
         was interrupted goes on where it was
peers    `model2vec.distill` of the same teacher at the student's width, and tokenlearn's training of that model on the same
         sentences and vectors of the teacher (OUT/model2vec, OUT/tokenlearn), in float32 as tokenlearn wants it; this one
         also in int8, and in int8 with fewer vectors than tokens (model2vec's `vocabulary_quantization`); both are optional
         packages, and without them their rows are left out
measure  each seed's student beside the teacher and the peers (OUT/seed-N.json), then the table of all seeds (OUT/table.md)

Every encoder is timed on one thread, from text to vectors, tokenising included, in rounds that take turns, so that what else
the machine does meets all of them; the median round counts, in the process's own time. The quality is the mean Spearman
x 100 of STS12 to STS14 and the test set of STS-B. Training seconds are those of one core, with the judging at rungs.
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
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from sentence_transformers import SentenceTransformer

from distilbench.commands.compare import compare
from distilbench.commands.corpus import load_corpus
from distilbench.data.requirements import Requirements
from distilbench.encoders.encoder import EncoderSpec
from distilbench.encoders.encoding import encode, word_reader
from distilbench.evaluation.sts import spearman
from distilbench.prepare.prepared import load_prepared
from distilbench.records import ScoreRecord, TrialRecord, read_records
from distilbench.settings.commands import CompareSettings
from distilbench.storage.files import write_json

GROUPS = ("STS12", "STS13", "STS14", "STSB.test")
USED = ("sts", "unlabeled")
"""What is read of a data folder: nothing that this is not about is encoded."""
ROWS = Path(__file__).parents[1] / "search_spaces" / "studies" / "static.yaml"
STEPS = ("train", "peers", "measure")
TEACHER, STUDENT, DISTILLED, TRAINED = "teacher", "static student", "model2vec.distill", "tokenlearn"
WORDS = f"{STUDENT} with 10,000 words"
STUDENTS = {STUDENT: "Static d=256", WORDS: "Static d=256, 10,000 words"}
"""The rows of `ROWS` that are trained."""
SMALLER = {"tokenlearn-int8": None, "tokenlearn-int8-8192": 8_192, "tokenlearn-int8-2048": 2_048}
"""What is made of tokenlearn's: vectors that its tokens share, None for one of each."""
PEERS = {"model2vec": DISTILLED, "tokenlearn": TRAINED} | {
    name: f"tokenlearn, int8{f', {count:,} vectors' if count else ''}" for name, count in SMALLER.items()
}
"""The rows of what is made in folders of OUT."""
MODEL2VEC = f"{STUDENT} in model2vec"
KNOWN = f"{STUDENT}, whose words it has read before"
DEFAULTS = f"{STUDENT} in sentence-transformers"
ORDER = (TEACHER, STUDENT, WORDS, KNOWN, DEFAULTS, MODEL2VEC, *PEERS.values())
"""Of the table's rows; those of `--beside` follow."""
TEACHER_READS = 512
"""Sentences of a round of the teacher, which is hundreds of times slower."""
Reader = Callable[[Sequence[str]], NDArray[Any]]


class Trained(NamedTuple):
    """A student that was trained: its folder, and how long that took."""

    folder: Path
    seconds: float


def main() -> None:
    arguments = parse()
    steps = arguments.step or STEPS
    settings = settings_of(arguments)
    if "train" in steps and min(len(trained(settings, row)) for row in STUDENTS.values()) < settings.seeds:
        compare(settings, Console())
    students = trained(settings)
    if not students:
        raise SystemExit(f"{run_of(settings)} has no student yet; expected --step train before")
    if "peers" in steps:
        make_peers(settings, arguments.out)
    if "measure" in steps:
        for seed in sorted(students):
            measure_seed(seed, settings, arguments)
        table = table_of(arguments.out)
        (arguments.out / "table.md").write_text(table, encoding="utf-8")
        print(table)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--store", type=Path, help="where the teacher's vectors are found again; default: OUT/store")
    parser.add_argument("--teacher", default="all-MiniLM-L6-v2")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--max-sentences", type=int, default=0, help="to train on; 0: all")
    parser.add_argument("--max-steps", type=int, help="of a training; default: as its epochs say")
    parser.add_argument("--count", type=int, default=20_000, help="sentences that the speed is measured on")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--beside", type=Path, action="append", default=[], help="another encoder, such as wordllama")
    parser.add_argument("--step", action="append", choices=STEPS)
    return parser.parse_args()


def settings_of(arguments: argparse.Namespace) -> CompareSettings:
    """The comparison that trains the students, on links to what is used of the data folder."""
    data = arguments.out / "data"
    data.mkdir(parents=True, exist_ok=True)
    for name in USED:
        if not (data / name).exists():
            (data / name).symlink_to((arguments.data / name).resolve())
    return CompareSettings(
        file=(ROWS,),
        data=str(data),
        teacher=arguments.teacher,
        seeds=arguments.seeds,
        steps=arguments.max_steps,
        max_sentences=arguments.max_sentences,
        tasks="sts",
        quantise="none",
        dashboard=False,
        name="static",
        runs=arguments.out / "runs",
        store=arguments.store or arguments.out / "store",
    )


def run_of(settings: CompareSettings) -> Path:
    return settings.runs / str(settings.name)


def trained(settings: CompareSettings, row: str = STUDENTS[STUDENT]) -> dict[int, Trained]:
    """The students of a row that are there, by seed."""
    scores, trials = (run_of(settings) / name for name in ("scores.jsonl", "trials.jsonl"))
    if not scores.exists():
        return {}
    seconds = {
        (record.seed, record.params["student"]): record.seconds
        for record in read_records(trials)
        if isinstance(record, TrialRecord) and record.state == "COMPLETE"
    }
    return {
        record.seed: Trained(run_of(settings) / record.model, seconds[record.seed, record.hyperparameters["student"]])
        for record in read_records(scores)
        if isinstance(record, ScoreRecord) and record.model and record.configuration == row
    }


def training_text(settings: CompareSettings) -> tuple[list[str], NDArray[np.float32]]:
    """What the students were trained on: the sentences, and the teacher's vectors of them, N x D."""
    corpus = load_corpus(settings, Requirements(), Console(quiet=True))
    prepared = load_prepared(run_of(settings) / "prepared")
    if len(corpus.sentences) != prepared.vectors.rows:
        raise SystemExit(f"{run_of(settings)} has {prepared.vectors.rows} sentences, the data {len(corpus.sentences)}")
    return [corpus.sentences[int(row)] for row in prepared.train], prepared.vectors.take(prepared.train)


def make_peers(settings: CompareSettings, out: Path) -> None:
    """Save what model2vec and tokenlearn make, each with the seconds that it took on one core."""
    if not importlib.util.find_spec("model2vec"):
        return
    from model2vec import StaticModel
    from model2vec.distill import distill

    torch.set_num_threads(1)
    student = next(iter(trained(settings).values())).folder
    width = EncoderSpec(str(student)).width()
    folder = settings.teacher_encoder.folder() or settings.teacher

    def keep(name: str, make: Callable[[], Any]) -> None:
        if (out / f"{name}.json").exists():
            return
        began = time.perf_counter()
        make().save_pretrained(out / name)
        write_json(out / f"{name}.json", {"seconds": time.perf_counter() - began})

    keep("model2vec", lambda: distill(str(folder), pca_dims=width, device="cpu", quantize_to="float32"))
    if importlib.util.find_spec("tokenlearn") and not (out / "tokenlearn.json").exists():
        from tokenlearn.train import train_model

        texts, vectors_ND = training_text(settings)
        started = StaticModel.from_pretrained(out / "model2vec")
        keep("tokenlearn", lambda: train_model(started, texts, vectors_ND.astype(np.float32), pca_dims=width))
    for name, count in SMALLER.items() if (out / "tokenlearn.json").exists() else ():
        given = {"quantize_to": "int8", **({"vocabulary_quantization": count} if count else {})}
        keep(name, lambda given=given: StaticModel.from_pretrained(out / "tokenlearn", **given))


def measure_seed(seed: int, settings: CompareSettings, arguments: argparse.Namespace) -> None:
    """Write what one seed's students and those beside them have."""
    to = arguments.out / f"seed-{seed}.json"
    if to.exists():
        return
    torch.set_num_threads(1)
    texts = training_text(settings)[0][: arguments.count]
    students = {name: trained(settings, row)[seed] for name, row in STUDENTS.items()}
    readers = readers_of(settings.teacher, students[STUDENT].folder, arguments.out)
    with_words = EncoderSpec(str(students[WORDS].folder)).load("cpu")
    readers[WORDS] = lambda given: encode(forgetful(with_words), given)
    for folder in arguments.beside:
        readers[folder.name] = sentences_reader(SentenceTransformer(str(folder), device="cpu"))
    speeds = timed(readers, texts, arguments.rounds)
    rows = {}
    for name, reader in readers.items():
        rows[name] = {"sentences_per_second": speeds[name]}
        if name not in (KNOWN, MODEL2VEC, DEFAULTS):
            rows[name]["sts"] = float(np.mean(quality(reader, arguments.data / "sts")))
    for folder, name in PEERS.items():
        if name in rows:
            rows[name]["seconds_to_make"] = json.loads((arguments.out / f"{folder}.json").read_text())["seconds"]
            rows[name]["bytes"] = weights_bytes(str(arguments.out / folder))
    for folder in arguments.beside:
        rows[folder.name]["bytes"] = weights_bytes(str(folder))
    for name, student in students.items():
        rows[name]["seconds_to_make"] = student.seconds
        rows[name]["bytes"] = weights_bytes(str(student.folder))
    rows[TEACHER]["bytes"] = weights_bytes(settings.teacher)
    write_json(to, {"seed": seed, "sentences": len(texts), "rounds": arguments.rounds, "rows": rows})


def readers_of(teacher: str, student: Path, out: Path) -> dict[str, Reader]:
    """Everything that is timed side by side."""
    whole, small = EncoderSpec(teacher).load("cpu"), EncoderSpec(str(student)).load("cpu")
    readers: dict[str, Reader] = {
        TEACHER: lambda given: encode(whole, given),
        STUDENT: lambda given: encode(forgetful(small), given),
        KNOWN: lambda given: encode(small, given),
        DEFAULTS: sentences_reader(small),
    }
    if importlib.util.find_spec("model2vec"):
        from model2vec import StaticModel

        readers[MODEL2VEC] = reader_of(StaticModel.from_pretrained(student))
        for folder, name in PEERS.items():
            if (out / f"{folder}.json").exists():
                readers[name] = reader_of(StaticModel.from_pretrained(out / folder))
    return readers


def forgetful(model: SentenceTransformer) -> SentenceTransformer:
    """The static encoder, as if it had read nothing yet."""
    if reader := word_reader(model):
        reader.forget()
    return model


def sentences_reader(model: SentenceTransformer) -> Reader:
    return lambda given: model.encode(list(given))


def reader_of(model: Any) -> Reader:
    return lambda given: model.encode(list(given), use_multiprocessing=False)


def weights_bytes(folder: str) -> int:
    path = Path(folder) if Path(folder).is_dir() else EncoderSpec(folder).folder()
    assert path is not None
    return sum(file.stat().st_size for file in path.rglob("*.safetensors"))


def timed(
    readers: dict[str, Reader], texts: Sequence[str], rounds: int, slow: Collection[str] = (TEACHER,)
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


def table_of(out: Path) -> str:
    """The means over the seeds that are measured, as Markdown, and the range over the seeds of the student's quality."""
    files = sorted(out.glob("seed-*.json"))
    seeds = [json.loads(file.read_text())["rows"] for file in files]
    lines = [
        f"The means over {', '.join(file.stem for file in files)}.",
        "",
        "| encoder | STS | of the teacher's | sentences per second | times the teacher | minutes to make | MB |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in dict.fromkeys([*ORDER, *(name for rows in seeds for name in rows)]):
        own = [(rows[name], rows[TEACHER]) for rows in seeds if name in rows]
        if not own:
            continue
        sts = [row["sts"] for row, _ in own if "sts" in row]
        kept = [100 * row["sts"] / teacher["sts"] for row, teacher in own if "sts" in row]
        times = [row["sentences_per_second"] / teacher["sentences_per_second"] for row, teacher in own]
        made = [row["seconds_to_make"] / 60 for row, _ in own if "seconds_to_make" in row]
        size = [row["bytes"] / 1e6 for row, _ in own if "bytes" in row]
        spread = f" ({min(kept):.1f} to {max(kept):.1f})" if len(set(kept)) > 1 else ""
        speed = statistics.fmean(row["sentences_per_second"] for row, _ in own)
        cells = [name, _mean(sts, 2), f"{_mean(kept, 1)} %{spread}" if kept else "", f"{speed:,.0f}"]
        lines.append(f"| {' | '.join([*cells, _mean(times, 0), _mean(made, 1), _mean(size, 1)])} |")
    return "\n".join(lines) + "\n"


def _mean(values: Sequence[float], digits: int) -> str:
    return f"{statistics.fmean(values):,.{digits}f}" if values else ""


if __name__ == "__main__":
    main()
