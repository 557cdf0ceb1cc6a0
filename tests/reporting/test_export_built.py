"""`distilbench export` of the teacher, its codes and the baselines: made from what the run was prepared from."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from distilbench.cli import app
from distilbench.data.folder import Limits, folder_corpus
from distilbench.data.requirements import Requirements
from distilbench.data.sampling import calibration_rows
from distilbench.evaluation.faiss_codes import Code
from distilbench.prepare.prepared import load_prepared
from distilbench.records import read_records
from distilbench.storage.files import write_json
from distilbench.trials.rows import RowScorer
from distilbench.trials.rung_training import build_method
from distilbench.trials.scoring import Scoring


@pytest.fixture(scope="module")
def scored(tmp_path_factory, prepared_folder, data_folder):
    """A run with the teacher (32 dimensions), PCA and random projection at 8, in every quantisation."""
    run = tmp_path_factory.mktemp("runs") / "run"
    corpus = folder_corpus(data_folder, Limits(), Requirements(triplets=True))
    console = Console(file=io.StringIO())
    board = RowScorer(Scoring(run, load_prepared(prepared_folder), corpus), "run", ("int8", "binary"), console)
    list(board.references([8], seed=3))
    shutil.copytree(prepared_folder, run / "prepared")
    return run


@pytest.fixture
def run(scored, tmp_path):
    return Path(shutil.copytree(scored, tmp_path / "run"))


def export(*arguments):
    return CliRunner().invoke(app, ["export", *map(str, arguments)])


@pytest.mark.parametrize(
    ("method", "quantisation"),
    [("teacher", "float32"), ("teacher", "int8"), ("pca", "float32"), ("random_projection", "binary")],
)
def test_the_folder_gives_the_scored_vectors_and_codes(run, tmp_path, method, quantisation):
    from sentence_transformers import SentenceTransformer

    (record,) = (r for r in read_records(run / "scores.jsonl") if (r.method, r.quantisation) == (method, quantisation))
    out = tmp_path / "out"
    result = export(run, "--student", record.record_id, "--to", out)
    assert result.exit_code == 0, result.output
    prepared = load_prepared(run / "prepared")
    sentences = (run / "prepared" / "sentences.txt").read_text().split("\n")
    rows = np.arange(40)
    if method == "teacher":
        embed = prepared.vectors.take
    else:
        embed = build_method(method, record.hyperparameters, prepared, record.seed, "cpu").embed
    found = SentenceTransformer(str(out), device="cpu").encode([sentences[i] for i in rows])
    assert found.shape == (40, record.dim)
    assert np.abs(found - embed(rows)).max() < 1e-3  # kept as float16
    kinds = sorted(p.name for p in out.glob("quantisation-*.json"))
    assert kinds == ([] if quantisation == "float32" else [f"quantisation-{quantisation}.json"])
    if quantisation != "float32":
        own = Code.load(quantisation, out, record.dim)
        expected = Code.calibrate(quantisation, embed(calibration_rows(prepared.train)))
        np.testing.assert_array_equal(own.encode(embed(rows)), expected.encode(embed(rows)))
        assert np.mean(own.encode(found) == expected.encode(embed(rows))) > 0.9
    card = (out / "README.md").read_text()
    assert ("itself, the teacher of" if method == "teacher" else "a layer after it that DistilBench fitted") in card
    assert "trained it by" not in card
    code = "\n".join(line[4:] for line in result.output.splitlines() if line.startswith("    "))
    names: dict = {}
    exec(code, names)
    assert names["vectors"].shape == (2, record.dim) and ("codes" in names) == (quantisation != "float32")


def test_best_names_a_baseline_and_how_it_is_exported(run, tmp_path):
    told = CliRunner().invoke(app, ["best", str(run), "--dim", "8", "--json", str(tmp_path / "best.json")])
    assert told.exit_code == 0, told.output
    found = json.loads((tmp_path / "best.json").read_text())
    assert found["student"]["role"] == "baseline" and found["model"] is None
    assert "none is kept: `export` makes it" in told.output and found["export"] in told.output
    result = export(*found["export"].split()[2:-1], tmp_path / "out")
    assert result.exit_code == 0, result.output
    kept = json.loads((tmp_path / "out" / "record.json").read_text())
    assert kept["record_id"] == found["student"]["seeds"][0]["record_id"]
    assert kept["scores_are"] == f"on {found['corpus']}"


@pytest.mark.parametrize("gone", ["prepared", "prepared.json", "vectors", "another", "changed"])
def test_what_it_is_made_from_is_gone(run, tmp_path, gone):
    file = run / "prepared" / "prepared.json"
    kept = json.loads(file.read_text())
    missing = str(tmp_path / "nowhere")
    if gone == "prepared":
        shutil.rmtree(run / "prepared")
    elif gone == "prepared.json":
        file.write_text("{")
    elif gone == "changed":
        write_json(run / "config.json", {"teacher_fingerprint": "another"})
    else:
        if gone == "another":
            kept["teacher"]["name"] = missing
        else:
            kept["vectors"]["folder"] = missing
        write_json(file, kept)
    (record,) = (r for r in read_records(run / "scores.jsonl") if (r.method, r.quantisation) == ("pca", "int8"))
    result = export(run, "--student", record.record_id, "--to", tmp_path / "out")
    assert result.exit_code == 2 and result.stdout == "" and result.stderr.count("\n") == 1, result.output
    expected = {"another": "expected tiny", "changed": "have changed since it was scored"}
    assert expected.get(gone, "PCA d=8: what it is made from is not as it was") in result.stderr
    assert not (tmp_path / "out").exists()


def test_a_marked_row_is_exported_with_a_warning(run, tmp_path):
    """By name it still works; command, card and record say it."""
    lines = (run / "scores.jsonl").read_text().splitlines()
    for place, line in enumerate(lines):
        record = json.loads(line)
        for cost in record["indexes"]:
            if record["method"] == "pca" and cost["kind"] == "int8":
                cost["overlap10_with_flat"] = 12.5
        lines[place] = json.dumps(record)
    (run / "scores.jsonl").write_text("\n".join(lines) + "\n")
    (record,) = (r for r in read_records(run / "scores.jsonl") if (r.method, r.quantisation) == ("pca", "int8"))
    assert any(cost.kind == "int8" for cost in record.indexes)
    out = tmp_path / "out"
    result = export(run, "--student", record.record_id, "--to", out)
    assert result.exit_code == 0, result.output
    reason = "of the first 10 documents that its own float32 vectors find they find 12.5 %"
    assert "Warning: Its int8 codes lose their neighbours" in result.output and reason in result.output
    assert "**Not recommended.**" in (out / "README.md").read_text()
    assert reason in json.loads((out / "record.json").read_text())["not_recommended"]
