"""`distilbench index`: documents become an index that faiss and sentence-transformers alone search; nothing is made twice."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys

import faiss
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from rich.console import Console
from samples import random_sentences
from sentence_transformers import SentenceTransformer
from typer.testing import CliRunner

from distilbench.cli import app
from distilbench.commands import index as module
from distilbench.commands.index import MANIFEST, index
from distilbench.data.documents import columns_of_documents, read_documents
from distilbench.errors import InputError
from distilbench.evaluation.faiss_codes import Code, inner_of
from distilbench.evaluation.indexes import IndexSpec, document_index, stored_codes
from distilbench.prepare import document_codes
from distilbench.settings.commands import IndexSettings

TEXTS = random_sentences(300, seed=8)
WIDTH = 32


@pytest.fixture(scope="module")
def student(tmp_path_factory, encoder_folder):
    """A student with prompts for documents and queries, without a code."""
    model = SentenceTransformer(str(encoder_folder), device="cpu")
    model.prompts = {"document": "how do i ", "query": "what is "}
    folder = tmp_path_factory.mktemp("index") / "student"
    model.save(str(folder), create_model_card=False)
    return folder


@pytest.fixture(scope="module")
def vectors(student):
    return SentenceTransformer(str(student), device="cpu").encode_document(TEXTS)


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.tsv"
    path.write_text("doc_id\ttext\n" + "".join(f"d{7 * i}\t{t}\n" for i, t in enumerate(TEXTS)))
    return path


@pytest.fixture(autouse=True)
def small_shards(monkeypatch, run_in_process):
    """Five shards of 64 documents, without Ray."""
    monkeypatch.setitem(document_codes.SHARD_ROWS, "cpu", 64)
    monkeypatch.setattr(document_codes, "run_pool", run_in_process)
    monkeypatch.setattr(module, "on_cluster", lambda *_: __import__("contextlib").nullcontext())


def made(tmp_path, student, documents, **options):
    settings = {"student": str(student), "documents": documents, "out": tmp_path / "out", "store": tmp_path / "store"}
    return index(IndexSettings(**(settings | options)), Console(quiet=True))


def with_code(student, folder, vectors, *kinds):
    """A copy of the student with codes of its own."""
    shutil.copytree(student, folder)
    for kind in kinds:
        Code.calibrate(kind, vectors).save(folder)
    return folder


def found_by(code, tmp_path, text):
    """What the README's Python prints, in a process that cannot import DistilBench."""
    assert "distilbench" not in code
    code = code.replace("How do I reset my password?", text)
    guard = "import sys; sys.modules['distilbench'] = None\n"
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", guard + code], cwd=tmp_path / "out", capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.strip().replace("'", '"'))


# --- What the README finds


@pytest.mark.parametrize(
    ("kind", "index_kind"),
    [
        ("float32", "flat"),
        pytest.param("int8", "hnsw", marks=pytest.mark.slow),
        pytest.param("int4", "ivf:4:4", marks=pytest.mark.slow),
        pytest.param("binary", "flat", marks=pytest.mark.slow),
        pytest.param("itq2", "ivf:4:4", marks=pytest.mark.slow),
    ],
)
def test_the_readme_finds_what_the_code_finds(tmp_path, student, vectors, corpus, kind, index_kind):
    folder = student if kind == "float32" else with_code(student, tmp_path / "s", vectors, kind)
    manifest = made(tmp_path, folder, corpus, index=index_kind)
    readme = (tmp_path / "out" / "README.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    assert len([line for line in code.splitlines() if line]) <= 12
    asked = TEXTS[5]
    found = found_by(code, tmp_path, asked)
    query = SentenceTransformer(str(student), device="cpu").encode_query([asked])  # "what is " comes before it
    if kind == "float32":
        best = np.argsort(-(vectors @ query[0]))[:10]
    else:
        code_of_kind = Code.calibrate(kind, vectors)
        decoded = code_of_kind.decode(code_of_kind.encode(vectors))
        decoded /= np.linalg.norm(decoded, axis=1, keepdims=True)
        best = np.argsort(-(decoded @ code_of_kind.queries(query)[0]))[:10]
    assert len(found) == 10
    # Bits have many equal similarities.
    common = len(set(found) & {f"d{7 * i}" for i in best})
    assert common >= {"binary": 5, "itq2": 5}.get(kind, 9)
    assert manifest["code"] == kind


def test_the_manifest_says_what_is_there(tmp_path, student, vectors, corpus):
    folder = with_code(student, tmp_path / "s", vectors, "int8")
    made(tmp_path, folder, corpus)
    out = tmp_path / "out"
    manifest = json.loads((out / MANIFEST).read_text())
    assert {p.name for p in out.iterdir()} == {*manifest["files"], MANIFEST}
    assert (manifest["code"], manifest["code_bytes"], manifest["dimensions"]) == ("int8", WIDTH, WIDTH)
    assert manifest["index"]["bytes"] == (out / "index.faiss").stat().st_size
    assert manifest["index"]["bytes_per_vector"] == pytest.approx(manifest["index"]["bytes"] / 300, abs=0.01)
    assert manifest["documents"]["count"] == 300 == faiss.read_index(str(out / "index.faiss")).ntotal
    assert (out / "ids.txt").read_text().splitlines() == [f"d{7 * i}" for i in range(300)]
    assert {"commit", "versions", "student"} <= set(manifest)


@pytest.mark.parametrize("width", [32, 20])
@pytest.mark.parametrize(
    "kind", ["float32", "int8", "int4", "binary", "pq4", "opq4", "itq2", "lsh2", "pcar4", "tq1-2", "tq2-4"]
)
def test_every_code_has_every_index_with_the_same_bytes(vectors, kind, width):
    own = np.ascontiguousarray(vectors[:, :width])
    code = None if kind == "float32" else Code.calibrate(kind, own)
    stored = stored_codes(code, own)
    assert stored.shape[1] == (4 * width if code is None else code.bytes_per_vector)
    unit = own / np.linalg.norm(own, axis=1, keepdims=True)
    found = {}
    for spec in (IndexSpec("flat"), IndexSpec("ivf", lists=(4, 4)), IndexSpec("hnsw")):
        sample = own[:200] if code is None else stored[:200]
        built = document_index(spec.resolved(300), width, 300, sample, code)
        for start in range(0, 300, 128):
            built.add_codes(stored[start : start + 128])
        held = faiss.deserialize_index(faiss.serialize_index(built.held))
        assert held.ntotal == 300
        found[spec.kind] = held.search(unit[:20], 10)[0]
        if spec.kind == "hnsw":
            codes = faiss.downcast_index(inner_of(built.held).storage).codes
            np.testing.assert_array_equal(faiss.rev_swig_ptr(codes.data(), codes.size()), stored.ravel())
    np.testing.assert_allclose(found["ivf"], found["flat"], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found["hnsw"], found["flat"], rtol=1e-4, atol=1e-5)


# --- On Ray Data, by the command line


@pytest.mark.slow
def test_the_command_on_ray_data(tmp_path, student, cluster, monkeypatch):
    monkeypatch.undo()
    monkeypatch.setitem(document_codes.SHARD_ROWS, "cpu", 64)
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join(TEXTS))
    words = ["index", "--student", str(student), "--documents", str(path), "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(app, [*words, "--workers", "1", "--store", str(tmp_path / "store")])
    assert done.exit_code == 0, done.output
    assert "300 documents, float32, flat" in done.output and "faiss.read_index" in done.output
    held = faiss.read_index(str(tmp_path / "out" / "index.faiss"))
    direct = SentenceTransformer(str(student), device="cpu").encode_document(TEXTS, normalize_embeddings=True)
    np.testing.assert_allclose(held.reconstruct_n(0, 300), direct, atol=1e-5)
    assert (tmp_path / "out" / "ids.txt").read_text().split() == [str(i) for i in range(1, 301)]


# --- What is read


def documents_of(path, id_column=None, text_column="text"):
    columns = columns_of_documents(path, id_column, text_column)
    return list(read_documents(path, columns))


def test_every_format_of_documents(tmp_path):
    (tmp_path / "a.tsv").write_text("doc_id\ttext\tis_beir_query\nx\tone\t0\nq\tquery\t1\ny\ttwo\t0\n")
    (tmp_path / "a.csv").write_text('text,id\none,x\n"two, 2",y\n')
    (tmp_path / "a.jsonl").write_text(
        '{"_id": "x", "title": "T", "text": "one"}\n{"_id": "7", "title": "", "text": "two"}\n'
    )
    parquet.write_table(pa.table({"id": [3, 4], "text": ["one", "two"]}), tmp_path / "a.parquet")
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    assert documents_of(tmp_path / "a.tsv") == [(2, "x", "one"), (4, "y", "two")]
    assert documents_of(tmp_path / "a.csv") == [(2, "x", "one"), (3, "y", "two, 2")]
    assert documents_of(tmp_path / "a.jsonl") == [(1, "x", "T one"), (2, "7", "two")]
    assert documents_of(tmp_path / "a.parquet") == [(1, "3", "one"), (2, "4", "two")]
    assert documents_of(tmp_path / "a.txt") == [(1, "1", "one"), (2, "2", "two")]


def test_documents_without_a_text_are_left_out_and_counted(tmp_path, student):
    path = tmp_path / "corpus.jsonl"
    rows = [(i, text) for i, text in enumerate([TEXTS[0], "", " ", TEXTS[1]])]
    path.write_text("".join(f'{{"_id": "{i}", "title": "", "text": "{text}"}}\n' for i, text in rows))
    for _ in range(2):  # made, then found in the store
        documents = made(tmp_path, student, path)["documents"]
        assert (documents["count"], documents["without_text"]) == (2, 2)
    assert (tmp_path / "out" / "ids.txt").read_text().split() == ["0", "3"]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.txt", "", r"a\.txt: no document with a text in it; expected at least one"),
        ("a.json", "[]", r"a\.json: the format is not known by the file's name; expected NAME\.tsv"),
        ("a.tsv", "id\ttext\na\tone\nb\ttwo\na\tthree\n", r"row 4: id 'a' is there already, in row 2; expected each"),
        ("a.tsv", "key\ttext\na\tone\n", r"no column of ids; expected doc_id, _id, id or another by --id-column"),
        ("a.tsv", "id\tbody\na\tone\n", r"no column 'text'; the columns are \['id', 'body'\] \(--text-column names"),
        ("a.csv", 'id,text\n"a\nb",one\n', r"column 'id' is 'a\\nb'; expected an id"),
        ("a.jsonl", '{"id": 1.5, "text": "one"}\n', r"row 1: column 'id' is 1\.5; expected an id"),
        ("a.jsonl", '{"id": 1, "text": "a"}\n{"id": "1", "text": "b"}\n', r"row 2: id '1' is there already, in row 1"),
    ],
)
def test_bad_documents_are_one_error(tmp_path, student, name, content, said):
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=said):
        made(tmp_path, student, tmp_path / name)
    assert not (tmp_path / "out").exists()


def test_bad_options_are_one_error(tmp_path, student, vectors, corpus):
    two = with_code(student, tmp_path / "two", vectors, "int8", "int4")
    for options, said in [
        ({"index": "sq8"}, r"--index sq8: expected one of flat, ivf, hnsw"),
        ({"index": "ivf:4"}, r"--index ivf:4: expected ivf alone, or"),
        ({"index": "ivf:400:4"}, r"--index: ivf:400:4: 300 documents; expected at least"),
        ({"code": "int8"}, r"--code int8: not saved with --student .*; it has none of 32 dimensions, and float32"),
        ({"code": "int9"}, r"code 'int9': expected int8, int4, int3, int2, binary"),
        ({"student": str(two)}, r"2 codes are saved with it; expected --code with one: it has int4, int8"),
        ({"student": str(tmp_path / "no")}, r"no such folder"),
        ({"documents": tmp_path / "no.tsv"}, r"--documents .*no\.tsv: no such file"),
        ({"id_column": "key"}, r"no column 'key'; the columns are \['doc_id', 'text'\] \(--id-column names another\)"),
        ({"out": tmp_path}, r"--out .*: not empty, and no index of ours; expected a new or empty folder"),
        ({"out": student / "x"}, r"--out .*: the student itself is kept there"),
    ]:
        with pytest.raises(InputError, match=said):
            made(tmp_path, options.pop("student", student), options.pop("documents", corpus), **options)
    assert made(tmp_path, two, corpus, code="float32")["code"] == "float32"
    (tmp_path / "out" / "mine").write_text("x")
    with pytest.raises(InputError, match="in it mine was added or changed since"):
        made(tmp_path, student, corpus)
