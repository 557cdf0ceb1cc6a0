"""Students beside what people use instead: the same teacher, text, start and machine, and for as long.

    python benchmarks/beside.py --data DIR --student FOLDER=RUN [--student FOLDER=RUN ...] --out OUT --store STORE

FOLDER is an exported student, RUN the sweep's folder that it comes from. The first four peers are trained as long as one
training of the first student's run took, judging included (--minutes says otherwise), from its layers, on the
training text of that run (--data, --text and limits are that run's), with the teacher's vectors that it has:

    mse-384           SentenceTransformerTrainer, MSELoss to the teacher's vectors
    mse-128           the same with a dense layer, to the teacher's PCA
    matryoshka-mse    MatryoshkaLoss around MSELoss, to the teacher's vectors
    matryoshka-pairs  MatryoshkaLoss around MultipleNegativesRankingLoss, on the training judgements of all retrieval sets
                      (a query and its passage); on similar pairs where there are none
    model2vec         model2vec.distill of the teacher, at 256 dimensions
    tokenlearn        tokenlearn's training of that model on the same text and vectors, by its own early stopping

Each of the first four tries every --lr for a tenth of its time first, and takes the best on STS-B dev; its learning rate
falls to 0 with the time. The last two are optional packages, which may be on PYTHONPATH. Two peers are made at once
(--at-once), each on one thread, as trials are. A peer that was made is not made again.

All are scored by `distilbench evaluate` on --tasks, and so is each folder of --beside, another encoder; plain truncation by
its --dims. --records adds FAISS's codes and PCA out of a sweep that has them. Speed is of one thread, text to vectors, in
rounds that take turns (benchmarks/static.py); model2vec and tokenlearn read with their own library. OUT/beside.md is the
table.
"""

from __future__ import annotations

import os

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import importlib.util
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from static import Reader, quality, reader_of, timed, weights_bytes

from distilbench.commands.corpus import load_corpus
from distilbench.data.corpus import Corpus
from distilbench.data.requirements import Requirements
from distilbench.encoders.encoder import EncoderSpec
from distilbench.encoders.encoding import encode
from distilbench.encoders.student import load_student
from distilbench.prepare.prepared import Prepared, load_prepared
from distilbench.records import ScoreRecord, TrialRecord, read_records
from distilbench.reporting.board import leaderboard
from distilbench.reporting.frame import board_columns
from distilbench.settings.run import PreparationSettings
from distilbench.storage.files import write_json

TRAINED = ("mse-384", "mse-128", "matryoshka-mse", "matryoshka-pairs")
STATIC = ("model2vec", "tokenlearn")
WIDTH, STATIC_WIDTH = 128, 256
DIMS = (256, 128, 64)
PCA_ROWS = 20_000
TRIED = 0.1
"""The share of the time in which each learning rate is tried."""
WARM_STEPS = 20
SPEED_TEXTS = 20_000
QUALITY = ("test", "ndcg10", "mrr10", "recall100", "sts_average")
"""Columns of a leaderboard that the table has, where there are such sets."""


@dataclass(frozen=True)
class Text:
    """What is trained on: the run's corpus and the teacher's vectors of it, and the layers that its student has."""

    settings: PreparationSettings
    """Those of the run that say what is read."""
    run: Path

    @cached_property
    def prepared(self) -> Prepared:
        """What the run's trainings read; of a comparison, whose rows have students of their own, the first one's."""
        return load_prepared(self.run / "prepared").of(trainings(self.run)[0].params)

    @cached_property
    def corpus(self) -> Corpus:
        """The corpus of the run.

        Raises:
            SystemExit: the data folder, the text, or the limits, are not those of the run.
        """
        corpus = load_corpus(self.settings, Requirements(), Console(quiet=True))
        asked = json.loads((self.run / "config.json").read_text())["corpus_fingerprint"]
        if corpus.fingerprint != asked:
            raise SystemExit(
                f"{self.settings.data}: not the corpus of {self.run}; expected its --data, --text, --select and limits"
            )
        return corpus

    def train(self) -> tuple[list[str], NDArray[np.float32]]:
        """The training sentences, and the teacher's vectors of them."""
        rows = self.corpus.train
        vectors_ND = self.prepared.vectors.take(rows).astype(np.float32)
        return [self.corpus.sentences[int(row)] for row in rows], vectors_ND

    def pairs(self) -> tuple[list[str], list[str]]:
        """Queries and their passages, all that there are to train on; similar pairs where no query has one."""
        whole = self.settings.model_copy(update={"max_pairs": 0})
        corpus = load_corpus(whole, Requirements(negatives=True), Console(quiet=True))
        pairs_P2 = corpus.judged_P2 if len(corpus.judged_P2) else corpus.pairs_P2
        left, right = ([corpus.sentences[int(row)] for row in pairs_P2[:, side]] for side in (0, 1))
        return left, right


def main() -> None:
    """Make what is missing, score it, and write the table; or make one part, which the whole does in processes of its own."""
    asked = parse()
    students = [tuple(map(Path, student.split("=", 1))) for student in asked.student]
    if any(len(student) != 2 for student in students):
        raise SystemExit(f"--student {' '.join(asked.student)}: expected FOLDER=RUN")
    given = ("data", "text", "max_sentences", "max_pairs", "max_documents", "tasks", "select", "store")
    text = Text(PreparationSettings(**{name: getattr(asked, name) for name in given}), students[0][1])
    minutes = asked.minutes or training_minutes(students[0][1])
    if asked.part:
        make(asked.part, text, minutes, [float(lr) for lr in asked.lr.split(",")], asked.batch, asked.out)
        return
    wanted = [name for name in asked.peers if name in TRAINED or importlib.util.find_spec(name)]
    if "tokenlearn" in wanted and "model2vec" not in wanted:
        raise SystemExit("--peers tokenlearn: expected model2vec too, which it begins with")
    missing = [name for name in wanted if not (asked.out / "parts" / f"{name}.json").exists()]
    with ThreadPoolExecutor(asked.at_once) as threads:
        left = [name for name in missing if name != "tokenlearn"]  # it begins with model2vec's
        list(threads.map(in_own_process, left))
        list(threads.map(in_own_process, [name for name in missing if name == "tokenlearn"]))
    made = {name: asked.out / "models" / name for name in wanted}
    folders = {folder.name: folder for folder in (*(folder for folder, _ in students), *asked.beside)} | made
    teacher = text.prepared.teacher
    evaluate(asked, teacher, list(folders.values()))
    speeds = measured_speeds(asked.out, text, folders, asked.rounds)
    took = {folder.name: training_minutes(run) for folder, run in students} | {students[0][0].name: minutes}
    took |= {name: json.loads((asked.out / "parts" / f"{name}.json").read_text())["minutes"] for name in made}
    table = rows(asked.out, asked.records, took, speeds, {"teacher": teacher, **spec_of(folders)})
    (asked.out / "beside.md").write_text(table)
    print(table)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--text", action="append", default=[], help="the run's other text, a file or glob; repeatable")
    parser.add_argument("--select", help="what the run was selected by, where it said so")
    parser.add_argument("--backend", default="torch", help="what runs the encoders while they are scored")
    parser.add_argument("--student", action="append", required=True)
    parser.add_argument("--beside", type=Path, action="append", default=[], help="another encoder's folder; repeatable")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--records", type=Path, action="append", default=[], help="a run's scores.jsonl; repeatable")
    parser.add_argument(
        "--minutes", type=float, help="what a training of the first student took, if its run says otherwise"
    )
    parser.add_argument("--lr", default="0.0001,0.0003")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--max-sentences", type=int, default=310_000)
    parser.add_argument("--max-pairs", type=int, default=20_000)
    parser.add_argument("--max-documents", type=int, default=20_000)
    parser.add_argument("--tasks", default="sts")
    every = (*TRAINED, *STATIC)
    parser.add_argument("--peers", nargs="+", choices=every, default=every, help="which of them; default: all")
    parser.add_argument("--part", choices=every, help="make this one alone")
    return parser.parse_args()


def training_minutes(run: Path) -> float:
    """How long a training of the run took, judging included; the median."""
    return statistics.median(record.seconds / 60 for record in trainings(run))


def trainings(run: Path) -> list[TrialRecord]:
    """Those that confirmed a trial, or all of a comparison.

    Raises:
        SystemExit: there is none.
    """
    files = [run / name for name in ("trials.jsonl", "confirmations.jsonl")]
    records = [r for file in files for r in read_records(file) if isinstance(r, TrialRecord)]
    if not records:
        raise SystemExit(f"{run}: no training; expected the folder of a finished run")
    return [r for r in records if r.confirms] or records


def in_own_process(name: str) -> None:
    """Make one part by this script, so that its threads and memory are its own."""
    subprocess.run([sys.executable, *sys.argv, "--part", name], check=True)


def make(name: str, text: Text, minutes: float, rates: Sequence[float], batch: int, out: Path) -> None:
    """Make one peer, and note how long it took."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    folder, part = out / "models" / name, out / "parts" / f"{name}.json"
    noted: dict[str, Any]
    if name in STATIC:
        noted = make_static(name, text, folder, out / "models" / "model2vec-own", part.parent / "model2vec.json")
    else:
        sts = text.settings.data_folder / "sts"
        tried = {
            lr: dev_score(trained(name, text, lr, batch, minutes * TRIED)[0], sts) for lr in rates if len(rates) > 1
        }
        lr = max(tried, key=lambda rate: tried[rate]) if tried else rates[0]
        model, steps, seconds = trained(name, text, lr, batch, minutes)
        model.save(str(folder))
        noted = {"minutes": seconds / 60, "steps": steps, "batch": batch, "lr": lr, "dev": dev_score(model, sts)}
        noted |= {"tried": {str(rate): score for rate, score in tried.items()}}
    part.parent.mkdir(parents=True, exist_ok=True)
    write_json(part, noted)


def make_static(name: str, text: Text, folder: Path, own: Path, distilled: Path) -> dict[str, Any]:
    """Model2vec's distillation, or tokenlearn's training of it, as sentence-transformers reads it.

    `own` is the folder of the distillation as its own library saves it, `distilled` the notes of that part.
    """
    from model2vec import StaticModel
    from model2vec.distill import distill
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, StaticEmbedding

    began = time.perf_counter()
    before = 0.0
    if name == "model2vec":
        spec = text.prepared.teacher
        model = distill(str(spec.folder() or spec.name), pca_dims=STATIC_WIDTH, device="cpu")
    else:
        from tokenlearn.train import train_model

        before = json.loads(distilled.read_text())["minutes"]
        sentences, vectors_ND = text.train()
        began = time.perf_counter()  # the teacher's vectors were there for our students too
        model = train_model(
            StaticModel.from_pretrained(own, quantize_to="float32"), sentences, vectors_ND, pca_dims=STATIC_WIDTH
        )
        own = own.with_name("tokenlearn-own")
    seconds = time.perf_counter() - began
    model.save_pretrained(own)
    SentenceTransformer(modules=[StaticEmbedding.from_model2vec(str(own)), Normalize()], device="cpu").save(str(folder))
    return {"minutes": before + seconds / 60}


def trained(name: str, text: Text, lr: float, batch: int, minutes: float) -> tuple[Any, int, float]:
    """A model trained by SentenceTransformerTrainer for so many minutes, its steps and seconds."""
    from datasets import Dataset
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from sentence_transformers.sentence_transformer.losses import MatryoshkaLoss, MSELoss, MultipleNegativesRankingLoss
    from sentence_transformers.sentence_transformer.modules import Dense, Normalize
    from transformers import TrainerCallback

    torch.manual_seed(0)
    start = load_student(text.prepared.student, text.prepared.teacher, "cpu", text.prepared.pooling)
    modules = list(start)
    if name == "matryoshka-pairs":
        anchors, positives = text.pairs()
        dataset = Dataset.from_dict({"anchor": anchors, "positive": positives})
    else:
        sentences, vectors_ND = text.train()
        if name == "mse-128":
            vectors_ND = projected(vectors_ND)
        dataset = Dataset.from_dict({"sentence": sentences, "label": vectors_ND})
    width = int(start.get_embedding_dimension())
    if name == "mse-128":
        modules.append(Dense(width, min(WIDTH, width), activation_function=torch.nn.Identity()))
    else:
        modules.append(Normalize())
    model = SentenceTransformer(modules=modules, device="cpu")
    loss: torch.nn.Module = MultipleNegativesRankingLoss(model) if name == "matryoshka-pairs" else MSELoss(model)
    if name.startswith("matryoshka"):
        loss = MatryoshkaLoss(model, loss, [width, *(d for d in DIMS if d < width)])
    optimiser = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.01, fused=True)
    began = 0.0

    def falling(step: int) -> float:
        """Rises over the first steps, then falls to 0 with the time."""
        left = 1 - (time.perf_counter() - began) / (60 * minutes) if began else 1.0
        return max(0.0, left) * min(1.0, (step + 1) / WARM_STEPS)

    class Clock(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            if time.perf_counter() - began >= 60 * minutes:
                control.should_training_stop = True

    trainer = SentenceTransformerTrainer(
        model=model,
        args=SentenceTransformerTrainingArguments(
            output_dir=str(text.settings.store / "beside-trainer"),
            max_steps=10**7,
            per_device_train_batch_size=batch,
            max_grad_norm=1.0,
            save_strategy="no",
            logging_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
        ),
        train_dataset=dataset,
        loss=loss,
        callbacks=[Clock()],
        optimizers=(optimiser, torch.optim.lr_scheduler.LambdaLR(optimiser, falling)),
    )
    began = time.perf_counter()
    trainer.train()
    return model.eval(), int(trainer.state.global_step), time.perf_counter() - began


def projected(vectors_ND: NDArray[np.float32]) -> NDArray[np.float32]:
    """The first principal components of the vectors, as sentence-transformers' example of distillation makes its targets."""
    from sklearn.decomposition import PCA

    sample = np.random.default_rng(0).permutation(len(vectors_ND))[:PCA_ROWS]
    pca = PCA(n_components=min(WIDTH, vectors_ND.shape[1])).fit(vectors_ND[sample])
    found: NDArray[np.float32] = vectors_ND @ pca.components_.T.astype(np.float32)
    return found


def dev_score(model: Any, sts: Path) -> float:
    """Spearman x 100 on STS-B dev."""
    return quality(lambda given: encode(model, given), sts, ("STSB.dev",))[0]


def evaluate(asked: argparse.Namespace, teacher: EncoderSpec, folders: Sequence[Path]) -> None:
    """Score all of them by `distilbench evaluate`, in `out/runs/beside`; what was scored is not scored again."""
    models = [str(folder) for folder in folders]
    options = ["--teacher", teacher.name, "--data", asked.data, "--tasks", asked.tasks, "--backend", asked.backend]
    options += ["--no-cost", "--indexes", "flat"]
    options += ["--dims", ",".join(map(str, DIMS)), "--max-documents", str(asked.max_documents), "--name", "beside"]
    places = ["--store", str(asked.store), "--runs", str(asked.out / "runs")]
    subprocess.run([sys.executable, "-m", "distilbench", "evaluate", *models, *options, *places], check=True)


def spec_of(folders: dict[str, Path]) -> dict[str, EncoderSpec]:
    """The folders as encoders."""
    return {name: EncoderSpec(str(folder)) for name, folder in folders.items()}


def measured_speeds(out: Path, text: Text, folders: dict[str, Path], rounds: int) -> dict[str, float]:
    """Sentences a second of each on one thread, measured once for all that there are."""
    file, names = out / "speeds.json", sorted(["teacher", *folders])
    if file.exists() and sorted(found := json.loads(file.read_text())) == names:
        return dict(found)
    torch.set_num_threads(1)
    texts = [text.corpus.sentences[int(row)] for row in text.corpus.train[:SPEED_TEXTS]]
    readers: dict[str, Reader] = {}
    for name, spec in {"teacher": text.prepared.teacher, **spec_of(folders)}.items():
        readers[name] = own_reader(out, name) or st_reader(spec)
    slow = [name for name in readers if name not in STATIC and not is_static(folders.get(name))]
    speeds = timed(readers, texts, rounds, slow)
    write_json(file, speeds)
    return speeds


def is_static(folder: Path | None) -> bool:
    """Whether a folder's first module is a table of tokens."""
    return folder is not None and "StaticEmbedding" in (folder / "modules.json").read_text()


def own_reader(out: Path, name: str) -> Reader | None:
    """Model2vec's own reading of its models."""
    if name not in STATIC:
        return None
    from model2vec import StaticModel

    return reader_of(StaticModel.from_pretrained(out / "models" / f"{name}-own"))


def st_reader(spec: EncoderSpec) -> Callable[[Sequence[str]], NDArray[Any]]:
    """Ours, of a sentence-transformers model."""
    model = spec.load()
    return lambda given: encode(model, given)


def rows(
    out: Path,
    also: Sequence[Path],
    minutes: dict[str, float],
    speeds: dict[str, float],
    specs: dict[str, EncoderSpec],
) -> str:
    """The table in Markdown: a line for each encoder at each width, and FAISS's codes and PCA of `also`."""
    records = [r for r in read_records(out / "runs" / "beside" / "scores.jsonl") if isinstance(r, ScoreRecord)]
    for file in also:
        found = [r for r in read_records(file) if isinstance(r, ScoreRecord)]
        records += [r for r in found if r.method == "faiss" or (r.method, r.quantisation) == ("pca", "float32")]
    board = leaderboard(records)
    quality_columns = [c for c in board_columns(board) if c.name in QUALITY and any(map(c.value, board.rows))]
    quality = " | ".join(column.title for column in quality_columns)
    lines = [
        f"| encoder | bytes per vector | {quality} | kept | minutes of training | sentences per second | MB |",
        "|---" * (6 + len(quality_columns)) + "|",
    ]
    for row in board.rows:
        record = row.record
        key = record.label.partition(" d=")[0]
        key = "teacher" if key == specs["teacher"].title else key
        own = record.role in ("teacher", "encoder")
        on_disk = weights_bytes(str(specs[key].folder() or specs[key].name)) if own and key in specs else None
        kind = "" if record.quantisation == "float32" else f" {record.quantisation}"
        cells = [f"{row.name}{kind}", str(record.bytes_per_vector), *(c.text(row, "") for c in quality_columns)]
        cells += ["" if row.test.retention is None else f"{row.test.retention:.1f} %"]
        cells += [
            f"{minutes[key]:.1f}" if key in minutes else "",
            f"{speeds[key]:,.0f}" if key in speeds and own else "",
        ]
        cells += ["" if on_disk is None else f"{on_disk / 1e6:.1f}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
