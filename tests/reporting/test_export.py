"""`distilbench export`: a folder that sentence-transformers alone loads, with the row's vectors; whole or not at all."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
from huggingface_hub import ModelCard
from samples import random_sentences
from typer.testing import CliRunner

from distilbench.cli import app
from distilbench.commands import export as module
from distilbench.commands import export_onnx
from distilbench.evaluation.faiss_codes import Code
from distilbench.records import append_records
from distilbench.reporting.board import leaderboard

SENTENCES = [*random_sentences(12, seed=3), "", "how do i " * 60]
WIDTH = 16
"""Of the student's vectors; its nested form has 8 numbers."""


@pytest.fixture(scope="module")
def student(tmp_path_factory, encoder_folder):
    """An exported student with a layer after the pooling, a prompt, and quantisers of two widths."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules.dense import Dense

    folder = tmp_path_factory.mktemp("students") / "student"
    base = SentenceTransformer(str(encoder_folder), device="cpu")
    torch.manual_seed(0)
    modules = [base[0], base[1], Dense(32, WIDTH, activation_function=torch.nn.Tanh())]
    model = SentenceTransformer(
        modules=modules,
        prompts={"query": "how do i ", "document": "how do i "},
        default_prompt_name="document",
        device="cpu",
    )
    model.save(str(folder), create_model_card=False)
    vectors = model.encode(random_sentences(50, seed=4))
    for width in (WIDTH, 8):
        for kind in ("int8", "binary"):
            Code.calibrate(kind, vectors[:, :width]).save(folder / f"d{width}")
    (folder / "README.md").write_text("an earlier card")
    (folder / ".half.tmp").write_text("half a file")
    return folder


@pytest.fixture
def run(tmp_path, student, make_score):
    """Two seeds of a nested student (64, 16, 8 and 1 bytes), a float32 one whose model is gone, and the teacher."""
    nested = {"output_dim": WIDTH, "halvings": 1}
    forms = [(WIDTH, "float32", 64), (WIDTH, "int8", 16), (8, "int8", 8), (8, "binary", 1)]
    records = [make_score("teacher", 82.0, role="teacher", dim=32, model="")]
    for dim, quantisation, size in forms:
        for seed in (0, 1):
            records.append(
                make_score(
                    f"nested d={dim}",
                    60.0 + size + seed,
                    record_id=f"{dim}-{quantisation}-{seed}",
                    dim=dim,
                    quantisation=quantisation,
                    bytes_per_vector=size,
                    hyperparameters=nested,
                    seed=seed,
                    model=f"students/nested-{seed}",
                )
            )
    records.append(make_score("gone", 50.0, dim=128, bytes_per_vector=512))
    records.append(make_score("unkept", 50.0, dim=127, bytes_per_vector=508, model=""))
    append_records(tmp_path / "run" / "scores.jsonl", records)
    for seed in (0, 1):
        shutil.copytree(student, tmp_path / "run" / "students" / f"nested-{seed}")
    return tmp_path / "run"


def export(*arguments):
    return CliRunner().invoke(app, ["export", *map(str, arguments)])


def names(folder):
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


def blocks(folder):
    """The Python of its card."""
    return re.findall(r"```python\n(.*?)\n```", (folder / "README.md").read_text(), re.S)


def vectors_of(folder):
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(folder), device="cpu").encode(SENTENCES)


def test_the_best_within_a_size_is_its_own_folder(run, student, tmp_path):
    result = export(run, "--bytes", "64", "--to", tmp_path / "out")
    assert result.exit_code == 0, result.output
    out = tmp_path / "out"
    assert result.output.startswith(f"nested d=16, seed 1, float32, 64 bytes per vector: {out}\n")
    np.testing.assert_array_equal(vectors_of(out), vectors_of(student))
    model = [n for n in names(student) if not n.startswith(("README", ".", "d16/", "d8/"))]
    assert names(out) == sorted([*model, "README.md", "record.json", "distilbench-export.json"])
    kept = json.loads((out / "record.json").read_text())
    assert kept["record_id"] == "16-float32-1" and [r["seed"] for r in kept["records"]] == [0, 1]
    assert ModelCard.load(out / "README.md").data.model_name == "nested d=16"
    assert "int8" not in (out / "README.md").read_text()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "run"]


@pytest.mark.parametrize(("size", "form"), [("16", (WIDTH, "int8")), ("1", (8, "binary"))])
def test_a_nested_and_quantised_student_gives_the_rows_codes(run, student, tmp_path, monkeypatch, size, form):
    width, quantisation = form
    out = tmp_path / "out"
    assert export(run, "--bytes", size, "--to", out).exit_code == 0
    vectors = vectors_of(out)
    np.testing.assert_array_equal(vectors, vectors_of(student)[:, :width])
    files = [n for n in names(out) if n.startswith("quantisation") or "/quantisation" in n]
    assert files == [f"quantisation-{quantisation}.faiss", f"quantisation-{quantisation}.json"]
    expected = Code.load(quantisation, student / f"d{width}").encode(vectors)
    np.testing.assert_array_equal(Code.load(quantisation, out, width).encode(vectors), expected)
    # What the card says, without DistilBench: its own sentences, then those of above.
    (load,) = blocks(out)
    assert "distilbench" not in load
    monkeypatch.chdir(out)
    first: dict = {}
    exec(load, first)
    assert first["codes"].dtype == expected.dtype and first["vectors"].shape == (2, width)
    first["vectors"] = vectors
    exec(load.splitlines()[-1], first)
    np.testing.assert_array_equal(first["codes"], expected)


def test_a_student_is_named_by_row_record_or_anchor(run, tmp_path):
    def written(*arguments):
        result = export(run, *arguments, "--to", tmp_path / "out")
        assert result.exit_code == 0, result.output
        return json.loads((tmp_path / "out" / "record.json").read_text())["record_id"]

    from distilbench.reporting.runs import read_runs

    (row,) = (r for r in leaderboard(read_runs([run])).rows if r.record.quantisation == "binary")
    assert written("--student", "8-binary-0") == "8-binary-0"
    assert written("--student", f"#{row.seeds[1].anchor}") == "8-binary-1"
    assert written("--student", row.anchor, "--seed", 1) == "8-binary-1"
    assert written("--student", f"{row.name}, binary", "--seed", 1) == "8-binary-1"
    assert written("--bytes", "64", "--seed", 0) == "16-float32-0"
    assert written("--dim", 8) == "8-int8-1"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--student", "nested d=16"), "--student nested d=16: 2 rows are called that; add the code, as in "),
        (("--student", "no such"), "--student no such: no such row; expected a row's name, a record id or an anchor"),
        (("--student", "8-int8-1", "--seed", "0"), "--seed 0: nested d=8 was trained with seed 1"),
        (("--bytes", "64", "--seed", "7"), "--seed 7: nested d=16 was trained with seed 0, 1"),
        (("--student", "unkept"), "unkept, seed 0: no model of it is kept (record id-unkept); "),
        (("--student", "teacher"), "teacher, seed 0: no model of it is kept "),
        (("--bytes", "0"), "--bytes 0: expected at least 1"),
        (("--student", "gone", "--dim", "8"), "--student: expected no --bytes, --latency or --dim with it"),
        (("--bytes", "8", "--dim", "4"), "at most 8 bytes per vector and 4 dimensions: no row is within it; "),
    ],
)
def test_what_cannot_be_exported_is_one_clear_error(run, tmp_path, arguments, message):
    result = export(run, *arguments, "--to", tmp_path / "out")
    assert result.exit_code == 2 and result.stdout == ""
    assert result.stderr.startswith(f"error: {message}") and result.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_record_cannot_name_a_folder_outside_its_run(tmp_path, student, make_score):
    for place in ("../secret", str(student)):
        append_records(tmp_path / "scores.jsonl", [make_score("s", model=place, record_id="s")])
        result = export(tmp_path, "--to", tmp_path / "out")
        assert result.exit_code == 2 and "expected a folder of its run" in result.stderr


def test_an_earlier_export_is_replaced_and_nothing_else_is(run, tmp_path):
    out = tmp_path / "out"
    out.mkdir()  # an empty folder will do
    assert export(run, "--bytes", "64", "--to", out).exit_code == 0
    assert export(run, "--bytes", "8", "--to", out).exit_code == 0
    assert "quantisation-int8.json" in names(out)

    (out / "notes.txt").write_text("mine")
    (out / "README.md").write_text("changed")
    refused = export(run, "--bytes", "64", "--to", out)
    assert refused.exit_code == 2 and "README.md, notes.txt were added or changed since" in refused.stderr
    assert (out / "notes.txt").read_text() == "mine" and "quantisation-int8.json" in names(out)

    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to(other)
    inside = run / "students" / "nested-0"
    before = names(inside)
    for place, why in (
        (other, "not empty, and no export of ours"),
        (tmp_path / "file", "a file"),
        (tmp_path / "link", "a link"),
        (inside / "export", "the student itself is kept there"),
        (run, "the student itself is kept there"),
    ):
        refused = export(run, "--student", "16-float32-0", "--to", place)
        assert refused.exit_code == 2 and why in refused.stderr, refused.stderr
    (other / "distilbench-export.json").write_text('{"format": 1, "files": "what"}')
    assert export(run, "--bytes", "64", "--to", other).exit_code == 2
    assert names(other) == ["distilbench-export.json", "thesis.txt"] and names(inside) == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "link", "other", "out", "run"]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt(), RuntimeError("a bug")])
def test_what_fails_half_way_leaves_what_was_there(run, tmp_path, monkeypatch, error):
    out = tmp_path / "out"
    assert export(run, "--bytes", "64", "--to", out).exit_code == 0
    before = {name: (out / name).read_bytes() for name in names(out)}

    def fail(*arguments):
        raise error

    monkeypatch.setattr(module, "model_card", fail)
    result = export(run, "--bytes", "8", "--to", out)
    assert result.exit_code != 0
    if isinstance(error, OSError):
        assert "No space left on device" in result.stderr and result.stderr.count("\n") == 1
    assert {name: (out / name).read_bytes() for name in names(out)} == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "run"]


@pytest.mark.slow
def test_sentence_transformers_alone_loads_it(run, tmp_path):
    """In a process of its own, where DistilBench cannot be imported."""
    out = tmp_path / "out"
    assert export(run, "--bytes", "64", "--to", out).exit_code == 0
    (code,) = blocks(out)
    blocked = "import sys; sys.modules['distilbench'] = None\n"
    done = subprocess.run(
        [sys.executable, "-P", "-c", f"{blocked}{code}\nprint(vectors.shape)"],
        cwd=out, text=True, capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0 and done.stdout.strip() == "(2, 16)", done.stderr


@pytest.mark.slow
def test_the_graph_gives_the_rows_vectors(run, tmp_path, monkeypatch):
    """With a prompt, a layer after the pooling, and half of the numbers; in batches of another size than it was made with."""
    import onnx

    out = tmp_path / "out"
    result = export(run, "--bytes", "8", "--onnx", "--to", out)
    assert result.exit_code == 0, result.output
    graph = onnx.load(out / "onnx" / "model.onnx")
    assert [i.name for i in graph.graph.input] == ["input_ids", "attention_mask"]
    assert [o.name for o in graph.graph.output] == ["sentence_embedding"]
    assert str(tmp_path).encode() not in (out / "onnx" / "model.onnx").read_bytes()
    assert "onnx/model.onnx" in json.loads((out / "distilbench-export.json").read_text())["files"]

    code = blocks(out)[-1]
    said = float(re.search(r"in float32 is (0\.\d+)", code)[1])
    assert '"how do i " + s' in code and "sentence_transformers" not in code and "torch" not in code
    monkeypatch.chdir(out)
    for sentences in (SENTENCES, SENTENCES[:1]):
        found: dict = {}
        exec(code.replace('["One sentence.", "Another one."]', repr(sentences)), found)
        expected = vectors_of(out)[: len(sentences)]
        assert found["vectors"].shape == (len(sentences), 8) and np.abs(found["vectors"] - expected).max() < 1e-5

    assert (out / "onnx" / "model_int8.onnx").stat().st_size < (out / "onnx" / "model.onnx.data").stat().st_size
    code = code.replace('"onnx/model.onnx"', '"onnx/model_int8.onnx"')
    exec(code.replace('["One sentence.", "Another one."]', repr(SENTENCES[:2])), found)
    in_int8, float32 = found["vectors"], vectors_of(out)[:2]
    cosine = (in_int8 * float32).sum(axis=1) / np.linalg.norm(in_int8, axis=1) / np.linalg.norm(float32, axis=1)
    assert 0.9 < said < 1 and (cosine > 0.95).all() and np.abs(in_int8 - float32).max() > 1e-5


def test_without_a_sound_graph_nothing_is_written(run, tmp_path, monkeypatch):
    def refused(message):
        result = export(run, "--bytes", "64", "--onnx", "--to", tmp_path / "out")
        assert result.exit_code == 2 and message in result.stderr and result.stderr.count("\n") == 1, result.output
        assert sorted(p.name for p in tmp_path.iterdir()) == ["run"]

    expected = vectors_of(run / "students" / "nested-1")
    monkeypatch.setattr(export_onnx, "SAMPLES", SENTENCES)
    with monkeypatch.context() as patched:
        patched.setattr(export_onnx, "save_graph", lambda *_, **__: None)
        patched.setattr(export_onnx, "run_onnx", lambda *_: expected * 1.001)
        refused("--onnx: nested d=16: no graph that ONNX Runtime can run: its vectors differ from PyTorch's by ")
        patched.setattr(export_onnx, "run_onnx", lambda *_: expected * np.nan)
        refused("its vectors differ from PyTorch's by nan")
    with monkeypatch.context() as patched:
        patched.setattr(export_onnx, "save_graph", lambda _, path, *__, **___: path.write_text("no graph"))
        refused("no graph that ONNX Runtime can run: ")
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "onnxscript", None)
        refused(
            "--onnx: the package onnxscript is not installed; `pip install 'distilbench[onnx]'`, or leave --onnx out"
        )
