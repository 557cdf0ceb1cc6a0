"""Comparisons end to end on a small data folder: named rows over seeds."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from run_command import Command
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules.normalize import Normalize
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer

from distilbench.evaluation.geometry import LEAST_SHARE
from distilbench.progress.console import LOG
from distilbench.records import ScoreRecord

MCR2 = {"output_dim": 8, "lambda": 50, "clusters": 4, "lr": 0.003, "batch_size": 16, "steps": 3000}
IBKD = {"output_dim": 8, "lr": 0.001, "batch_size": 16, "epochs": 1, "labelled": "pairs", "precision": "bf16"}
IBKD |= {"ft_epochs": 2, "ft_batch_size": 16, "ft_lr": 0.001}
ALIKE = {"lambda": 1e6, "lr": 0.05, "batch_size": 64, "centre": False, "noise_kind": "factor"}
"""With them all vectors are soon alike."""
ROWS: dict[str, dict[str, Any]] = {
    "head": {"method": "mcr2", "params": MCR2, "table": "1", "published": {"STSB": 75.0}},
    "diverges": {"method": "mcr2", "params": {**MCR2, "lambda": 1e39}},  # above float32
    "collapses": {"method": "mcr2", "params": {**MCR2, **ALIKE}},
    "two phases": {"method": "ibkd", "params": IBKD},
    "nested": {
        "method": "matryoshka",
        "params": {"output_dim": 8, "halvings": 1, "lr": 0.001, "batch_size": 16, "labelled": "pairs"},
    },
    "no training": {"method": "pca", "params": {"output_dim": "native"}},
}
KINDS = ("float32", "int8", "int4", "binary")


def make_compare(
    folder: Path, data: Path, encoder: Path, store: Path, rows: dict[str, dict[str, Any]], *arguments: str
) -> Command:
    """The command of a comparison of `rows`."""
    path = folder / "rows.yaml"
    path.write_text(yaml.safe_dump({"rows": [{"name": name, **row} for name, row in rows.items()]}, sort_keys=False))
    return Command("compare", folder, data, encoder, store, str(path), *arguments)


def students(compare: Command) -> list[ScoreRecord]:
    return [r for r in compare.scores() if r.role == "student"]


def rows_of(compare: Command) -> Counter[tuple[str, int, int, str]]:
    return Counter((r.configuration, r.seed, r.dim, r.quantisation) for r in students(compare))


def trainings(compare: Command) -> Counter[tuple[str, int, str]]:
    """Method, seed and state of every recorded training."""
    return Counter((r.method, r.seed, r.state) for r in compare.trials())


def wanted(widths: dict[str, list[int]], seeds: int) -> Counter[tuple[str, int, int, str]]:
    return Counter((n, seed, w, k) for n, ws in widths.items() for seed in range(seeds) for w in ws for k in KINDS)


def assert_whole(compare: Command) -> None:
    """Every record once, trials numbered from 0, every student saved, nothing half-written."""
    records = compare.scores()
    assert len({r.record_id for r in records}) == len(records)
    assert [r.number for r in compare.trials()] == list(range(len(compare.trials())))
    for record in students(compare):
        assert (compare.run / record.model / "modules.json").exists()
    assert compare.leftovers() == []
    assert (compare.folder / "reports" / "r" / "index.html").stat().st_size > 10_000


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_comparison_fails_in_part_repeats_and_grows(
    tmp_path: Path, data_folder: Path, encoder_folder: Path, store: Path, cluster: None
) -> None:
    from samples import sts_scores
    from sentence_transformers import SentenceTransformer

    from distilbench.data.folder import Limits, folder_corpus

    fixed = ("--student", "layers:0,2", "--steps", "12")
    compare = make_compare(tmp_path, data_folder, encoder_folder, store, ROWS, *fixed)
    out = compare.done("--row", "head", "--row", "diverges", "--seeds", "1")
    reason = "loss -inf, gradient norm nan at step 0"
    assert f"failed: diverges, seed 0: {reason}" in out
    assert out.rstrip().endswith(str(tmp_path / "reports" / "r" / "index.html"))
    assert_whole(compare)
    assert rows_of(compare) == wanted({"head": [8]}, 1)
    assert {(r.state, r.reason) for r in compare.trials()} == {("COMPLETE", ""), ("FAIL", reason)}
    references = [(r.role, r.method, r.dim, r.quantisation) for r in compare.scores() if r.role != "student"]
    assert Counter(references) == Counter(
        (*row, kind)
        for row in (("teacher", "teacher", 32), ("baseline", "pca", 8), ("baseline", "random_projection", 8))
        for kind in KINDS
    )
    first = compare.files()

    # More rows and seeds: what is there stays, byte for byte, and is not trained again.
    out = compare.done("--seeds", "2")
    log = (compare.run / LOG).read_text()
    assert log.count("trained head, seed 0") == log.count("trained head, seed 1") == 1
    assert f"failed: diverges, seed 0: {reason}" in out and f"failed: diverges, seed 1: {reason}" in out
    files = compare.files()
    assert files.keys() == first.keys() == {"scores.jsonl", "trials.jsonl"}
    assert all(files[name].startswith(content) for name, content in first.items())
    assert_whole(compare)
    widths = {"head": [8], "two phases": [8], "nested": [8, 4], "no training": [32]}
    assert rows_of(compare) == wanted(widths, 2)
    methods = ("mcr2", "ibkd", "matryoshka", "pca")
    assert trainings(compare) == Counter(
        [*((m, s, "COMPLETE") for m in methods for s in (0, 1)), *(("mcr2", s, "FAIL") for s in (0, 1, 0, 1))]
    )
    collapsed = [r for r in compare.trials() if r.params.get("lambda") == 1e6]
    for record in collapsed:
        assert record.reason.startswith("collapsed: the unit vectors have ")
        *before, last = record.rungs
        assert [r.step for r in record.rungs] == [1, 4, 12][: len(record.rungs)]
        shares = [rung.metrics["relative_variance"] or 0.0 for rung in before]
        assert (last.metrics["relative_variance"] or 0.0) < LEAST_SHARE <= min(shares)
        assert f"failed: collapses, seed {record.seed}: {record.reason}" in out
    steps = {r.method: [rung.step for rung in r.rungs] for r in compare.trials() if r.state == "COMPLETE"}
    assert steps["mcr2"] == [1, 4, 12] and steps["pca"] == [0]
    assert steps["ibkd"][-1] <= 12
    labels = {r.configuration: r.label for r in students(compare) if r.dim != 4}
    assert labels["nested"] == "Matryoshka (pairs, of 8) d=8" and labels["two phases"].startswith("IBKD (fine-tuned")
    baselines = {(r.method, r.dim) for r in compare.scores() if r.role == "baseline"}
    assert baselines == {(m, d) for m in ("pca", "random_projection") for d in (4, 8, 32)}

    # The saved students are those that were scored, whole and cut.
    corpus = folder_corpus(data_folder, Limits())
    for record in students(compare):
        if record.quantisation == "float32" and record.seed == 1:
            cut = record.dim if record.configuration == "nested" else None
            model = SentenceTransformer(str(compare.run / record.model), device="cpu", truncate_dim=cut)
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=record.configuration == "two phases"):
                outside = sts_scores(lambda rows, m=model: m.encode([corpus.sentences[i] for i in rows]), corpus.sts)
            assert [s.value for s in outside] == pytest.approx(
                [s.value for s in record.scores if s.task == "sts"], abs=0.6
            )
    by_seed = [[s.value for s in r.scores] for r in students(compare) if (r.configuration, r.dim) == ("head", 8)]
    assert by_seed[0] != by_seed[3]

    # The same again trains nothing and changes nothing.
    saved = {p: p.stat().st_mtime_ns for p in (compare.run / "students").rglob("*")}
    lines = (compare.run / LOG).read_text().splitlines()
    out = compare.done("--seeds", "2")
    assert out.count("failed: ") == 4
    more = (compare.run / LOG).read_text().splitlines()[len(lines) :]
    assert not [line for line in more if "trained " in line or "training failed" in line]
    assert compare.files() == files
    assert {p: p.stat().st_mtime_ns for p in (compare.run / "students").rglob("*")} == saved
    page = (tmp_path / "reports" / "r" / "index.html").read_text()
    assert "two phases" in page and "nested" in page
    with (tmp_path / "reports" / "r" / "leaderboard.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    apart = [row["tie_group"] == "" for row in rows]
    assert apart == [(row["role"], row["code"]) == ("teacher", "float32") for row in rows]


@pytest.mark.slow
def test_rows_with_students_of_their_own(tmp_path: Path, data_folder: Path, encoder_folder: Path, store: Path) -> None:
    hpd = {"output_dim": 8, "lr": 0.001, "batch_size": 16, "epochs": 1}
    table = StaticEmbedding(Tokenizer.from_file(str(encoder_folder / "tokenizer.json")), embedding_dim=6)
    SentenceTransformer(modules=[table, Normalize()], device="cpu").save(str(tmp_path / "general"))
    rows: dict[str, dict[str, Any]] = {
        "goes on": {"method": "hpd", "student": f"static@{tmp_path / 'general'}", "params": hpd},
        "table": {"method": "hpd", "student": "static", "params": hpd},
        "last layer": {"method": "hpd", "student": "layers:2", "params": hpd},
        "as the command says": {"method": "hpd", "params": hpd},
        "head": {"method": "pca", "params": {"output_dim": 8}},
    }
    compare = make_compare(tmp_path, data_folder, encoder_folder, store, rows, "--steps", "4", "--seeds", "1")
    compare.done("--quantise", "none", "--row", "table")
    first = compare.files()
    compare.done("--quantise", "none")  # rows with other students are added to it
    assert all(compare.files()[name].startswith(content) for name, content in first.items())
    start = {r.configuration: r.start.rpartition("/")[2] for r in students(compare)}
    assert start["table"].endswith("tokens (static)") and start["last layer"].endswith(" layers:2")
    assert start["goes on"] == "general (static)"
    assert " layers:" in start["as the command says"] and start["as the command says"] != start["last layer"]
    assert start["head"] == "teacher (frozen)"
    assert {r.configuration for r in students(compare) if r.documents} == rows.keys() - {"head"}

    # One for all of them is another run.
    assert "student" in compare.refused("--quantise", "none", "--student", "static")
