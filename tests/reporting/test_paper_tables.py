"""The papers' tables, filled with rows that fit: their shape, their published lines, and nothing where nothing fits."""

from __future__ import annotations

import pytest

from distilbench.records import EncoderCost, Score
from distilbench.reporting.exports.paper_lines import measured_rows, paper_grid
from distilbench.reporting.exports.paper_tables import TABLES
from distilbench.reporting.published import published_rows
from distilbench.reporting.table import SEVEN, leaderboard

BY_KEY = {table.key: table for table in TABLES}
PRINTED = {
    "hpd-1": 14,
    "hpd-2": 12,
    "hpd-3": 8,
    "hpd-4": 16,
    "mcr2-1": 10,
    "mcr2-2": 10,
    "mcr2-3": 10,
    "mcr2-4": 8,
    "ibkd-2": 18,
    "ibkd-3": 17,
    "ibkd-4": 4,
    "ibkd-6": 5,
    "ibkd-7": 5,
    "dse-1": 9,
    "dse-2": 5,
    "dse-3": 4,
    "dse-4": 4,
}
"""Lines that each table has in its paper."""


def score(task, name, metric, value, split="test", variant="all"):
    return Score(task=task, set=name, split=split, metric=metric, variant=variant, value=value, n=1000)


def seven(quality):
    found = [score("sts", name, "spearman", quality) for name in SEVEN]
    return found + [score("sts", f"STS{y}", "spearman", quality + 1, variant="wmean") for y in range(12, 17)]


@pytest.fixture
def encoder_cost():
    return EncoderCost(
        parameters_without_embeddings=10,
        bytes_on_disk=40,
        sentences_per_second_1=50.0,
        sentences_per_second_32=200.0,
        p50_ms=15.0,
        p95_ms=20.0,
        threads=1,
        device="cpu",
        timed_1=500,
        timed_32=512,
    )


@pytest.fixture
def full(make_score, make_cluster, encoder_cost):
    """Records that every table has a row of: methods, settings, sets and costs from all four papers."""

    def made(label, method, quality, *more, **changes):
        record = make_score(label, quality, method=method, trial=None, **({"cost": encoder_cost} | changes))
        indexes = [i.model_copy(update={"set": "quora-duplicates"}) for i in record.indexes]
        return record.model_copy(update={"scores": [*seven(quality), *more], "indexes": indexes})

    marco = score("retrieval", "msmarco", "mrr@10", 30.0, split="dev")
    classes = [score("classification", n, "accuracy", 80.0) for n in ("SST2", "MR", "CR", "SUBJ", "MPQA", "TREC")]
    probed = [score("pair-probe", "MRPC", "f1", 81.0), score("pair-probe", "MRPC", "accuracy", 75.0)]
    pairs = [score("pairs", "MNLI", "accuracy", 80.0, split="dev"), score("pairs", "MNLI", "accuracy", 79.0)]
    ft = {"ft_epochs": 3, "kernel": "rbf", "beta1": 1.0, "beta2": 0.5}
    return [
        made("T d=768", "teacher", 82.0, marco, *classes, *probed, role="teacher", dim=768, teacher="T", start=""),
        made("HPD d=64", "hpd", 76.0, hyperparameters={}, start="MiniLM-L6-H384-uncased"),
        made("HPD (augmented) d=64", "hpd", 77.0, hyperparameters={"augmentation": True}),
        made("whitened", "hpd", 75.0, hyperparameters={"whiten_from": 384}),
        made("IBKD (fine-tuned) d=64", "ibkd", 78.0, marco, hyperparameters=ft),
        made("MCR2 d=64", "mcr2", 73.0, *classes, clusters=[make_cluster(), make_cluster(kind="k-means", fit_s=100.0)]),
        made("MCR2 distilled d=64", "mcr2_distil", 74.0, hyperparameters={}),
        made("DSE d=64", "dse", 70.0, *pairs, *classes, *probed, hyperparameters={"task": "MNLI", "alpha": 0.5}),
        made(
            "DSE 2 d=64", "dse", 70.0, score("pairs", "QQP", "f1", 60.0), hyperparameters={"task": "QQP", "alpha": 0.5}
        ),
    ]


def grid(key, records):
    return paper_grid(BY_KEY[key], measured_rows(leaderboard(records)), published_rows())


def lines(found, *, published):
    return {
        line.cells[0]: dict(zip([head.title for head in found.head], line.cells, strict=True))
        for section in found.sections
        for line in section.lines
        if line.published == published
    }


def section_of(found, name):
    return next(s.title for s in found.sections for line in s.lines if line.cells[0] == name)


def test_every_table_of_the_issue_is_there():
    assert list(PRINTED) == [table.key for table in TABLES]


@pytest.mark.parametrize("key", PRINTED)
def test_a_table_has_all_lines_of_its_paper_and_a_measured_one(full, key):
    found = grid(key, full)
    printed = [line for section in found.sections for line in section.lines if line.published]
    assert len(printed) == PRINTED[key]
    assert all(line.cells[-1].startswith("published: ") for line in printed)
    # each has at least one number, and all have one cell a column
    assert all(any(cell != "-" for cell in line.cells[1:-1]) for line in printed)
    assert {len(line.cells) for s in found.sections for line in s.lines} == {len(found.head)}
    assert lines(found, published=False)


COPIED = [
    ("hpd-1", "HPD-TinyBERT-H128", "74.20 84.49 79.95 85.79 80.07 83.41 78.99 80.99 14M 128 2608"),
    ("hpd-1", "SRoBERTa_large", "74.53 77.00 73.18 81.85 76.82 79.10 74.29 76.68 355M 1024 385"),
    ("hpd-2", "HPD-TinyBERT-H312-wo-Aug", "312 81.50 79.27"),
    ("hpd-3", "HPD-MiniLM-H384", "0.612 194.4 127.83"),
    ("hpd-4", "HPD-MiniLM-H384-whiten-256", "256 73.98 84.15 79.61 85.63 79.78 83.09 78.73 80.71"),
    ("mcr2-1", "all-mpnet-base-v2 + MCR200", "0.645 0:04:16 - 0:04:16"),
    ("mcr2-1", "all-mpnet-base-v2 (768) + kmeans", "0.648 0:04:17 0:59:57 1:04:12"),
    ("mcr2-2", "all-MiniLM-L6-v2 + MCR50", "50 0.752 0.654 0.690 0.682 0.741 0.737"),
    ("mcr2-3", "all-mpnet-base-v2 + MCR300", "300 87.59 44.66 82.33 79.71 90.73 85.76 79.80 73.97"),
    ("mcr2-4", "PCA (64 dim)", "64 73.04 83.73 78.93 83.33 79.07 83.30 78.28 79.95"),
    ("ibkd-2", "MiniLM-IBKD-128", "76.34 85.38 81.32 85.34 81.87 85.14 80.67 82.29 23M 128"),
    ("ibkd-3", "MiniLM-HPD_ft", "36.53 96.70 128 23M 2300 4.4"),
    ("ibkd-4", "TinyBERT-IBKD_ft", "82.01 37.32"),
    ("ibkd-6", "SimCSE-BERT_large", "82.21 330M 1024"),
    ("ibkd-7", "RetroMAE", "41.60 98.80 110M 768"),
    ("dse-1", "DSE (alpha = 0.5)", "80.9/80.4 68.5/86.9 86.0 86.7/80.7 86.4/85.8 82.83"),
    ("dse-2", "InferSent", "81.1 86.3 92.4 90.2 84.6 88.2 83.1/76.2 0.884 86.3 75.8/75.5 85.2"),
    ("dse-3", "BERT-Large", "1 9:39:36 300 10.4_s"),
    ("dse-3", "DSE (f phase)", "- 2.48_s 200000 0.49_s"),
    ("dse-4", "DSE", "13594 0.256_s"),
]
"""Lines as the papers print them (9.66 hours, 10.43 s)."""


@pytest.mark.parametrize(("key", "name", "cells"), COPIED)
def test_published_lines_are_as_printed(full, key, name, cells):
    found = lines(grid(key, full), published=True)[name]
    assert [cell.replace(" ", "_") for cell in list(found.values())[1:-1]] == cells.split()


def test_measured_rows_stand_in_the_group_that_they_fit(full):
    found = grid("hpd-1", full)
    assert section_of(found, "T d=768") == "Large models"
    assert section_of(found, "HPD d=64") == "Backbone for compact model: MiniLM"
    assert section_of(found, "whitened") == "Other backbones"
    assert "IBKD (fine-tuned) d=64" not in lines(found, published=False)
    augmented = grid("hpd-2", full)
    assert section_of(augmented, "HPD d=64") == "HPD-MiniLM-wo-Aug"
    assert section_of(augmented, "HPD (augmented) d=64") == "HPD, other backbones"
    assert "whitened" not in lines(augmented, published=False)
    assert section_of(grid("hpd-4", full), "whitened") == "With whitening"


def test_variants_are_those_of_the_paper(full):
    assert lines(grid("hpd-1", full), published=False)["HPD d=64"]["STS12"] == "76.00"
    assert lines(grid("mcr2-2", full), published=False)["MCR2 d=64"]["STS12"] == "0.740"  # 73 + 1 of wmean
    assert lines(grid("mcr2-2", full), published=False)["MCR2 d=64"]["STS-B"] == "0.730"


def test_what_records_do_not_have_is_missing_and_said(full):
    marco = grid("ibkd-3", full)
    measured = lines(marco, published=False)["IBKD (fine-tuned) d=64"]
    assert (measured["MRR@10"], measured["Recall@1000"], measured["Memory, GB"]) == ("30.00", "-", "-")
    assert measured["From"].endswith("kernel rbf, beta1 1.0, beta2 0.5")
    assert any("no Recall@1000" in note for note in marco.notes)
    clusters = lines(grid("mcr2-1", full), published=False)
    assert clusters["MCR2 d=64 + kmeans"]["clustering"] == "0:01:40" and clusters["MCR2 d=64 + kmeans"]["total"] == "-"
    assert clusters["MCR2 d=64"]["clustering"] == "0.5 s" and clusters["MCR2 d=64"]["encoding"] == "-"


def test_costs_are_those_of_the_records(full):
    offline = lines(grid("dse-3", full), published=False)
    assert offline["DSE d=64 (ψ phase)"]["Time"] == "5 s"  # 1,000 sentences at 200 a second
    assert offline["DSE d=64 (ψ phase)"]["Time / Max batch size"] == "0.16 s"
    online = lines(grid("dse-4", full), published=False)
    # 15 ms to embed; the flat index takes 64 x 0.9 ms for 1,000 queries
    assert online["DSE d=64 (ψ phase)"]["Time"] == "0.015 s" and online["DSE d=64 (f phase)"]["Time"] == "0.0576 ms"
    assert online["DSE d=64"]["Time"] == "0.0151 s" and online["DSE d=64"]["Speedup factor"] == "-"
    quora = lines(grid("hpd-3", full), published=False)["HPD d=64"]
    assert (quora["MRR"], quora["Time"]) == ("0.530", "4.5")
    assert "nlist 1024, nprobe 5, quora-duplicates, 20000 documents, 1 thread" in quora["From"]


def test_a_model_for_each_pair_task_is_one_line_as_in_the_paper(full):
    found = lines(grid("dse-1", full), published=False)
    assert list(found) == ["DSE (alpha = 0.5), d=64"]
    assert found["DSE (alpha = 0.5), d=64"]["MNLI"] == "80.0/79.0"
    assert found["DSE (alpha = 0.5), d=64"]["QQP"] == "60.0/-"


def test_two_measured_models_are_never_one_line(full):
    twice = [full[1], full[1].model_copy(update={"run": "another", "scores": full[1].scores[:1]})]
    found = grid("hpd-4", twice)
    measured = [line.cells for section in found.sections for line in section.lines if not line.published]
    assert len(measured) == 2 and {cells[-1].split(", ")[1] for cells in measured} == {"run synthetic", "run another"}


def test_a_table_that_nothing_fits_is_left_out(make_score):
    board = leaderboard([make_score("MCR2 d=64", method="mcr2", hyperparameters={}, indexes=[])])
    measured = measured_rows(board)
    there = [table.key for table in TABLES if paper_grid(table, measured, published_rows()) is not None]
    assert there == ["mcr2-2"]
    assert not any(paper_grid(table, measured_rows(leaderboard([])), published_rows()) for table in TABLES)


def test_quantised_rows_and_trials_that_dev_did_not_choose_are_left_out(make_seeded, make_score, make_trial):
    quantised = grid("mcr2-2", make_seeded())
    assert not [name for name in lines(quantised, published=False) if "int8" in name or "binary" in name]
    trials = [make_trial(number, objective=70.0 + number) for number in (1, 2)]
    students = [
        make_score(f"HPD d=64 t{n}", 70.0 + n, trial=n, record_id=f"r{n}", hyperparameters={"lr": n / 1e4})
        for n in (1, 2)
    ]
    assert list(lines(grid("hpd-4", [*trials, *students]), published=False)) == ["HPD d=64 t2"]


def test_an_interval_over_seeds_is_shown_and_the_seeds_are_told(make_seeded):
    found = lines(grid("mcr2-2", make_seeded()), published=False)["MCR2-32-float32"]
    assert found["STS-B"] == "0.730 ± 0.025" and "3 seeds" in found["From"]
