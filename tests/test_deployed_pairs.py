"""Queries by a student, documents by its teacher: exported as one folder, indexed, and beside vectors that exist already."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from numpy.typing import NDArray
from rich.console import Console
from safetensors.numpy import load_file
from samples import random_sentences
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules.dense import Dense
from typer.testing import CliRunner

from distilbench.cli import app
from distilbench.commands.export_onnx import run_onnx, write_onnx
from distilbench.commands.export_router import write_router
from distilbench.commands.index import MANIFEST, index
from distilbench.data.folder import Limits, folder_corpus
from distilbench.data.sentences import CorpusText
from distilbench.encoders.encoder import EncoderSpec
from distilbench.encoders.encoding import encode
from distilbench.encoders.prompts import Prompts
from distilbench.encoders.shared_space import SharedSpace
from distilbench.errors import InputError
from distilbench.evaluation.faiss_codes import Code, unit
from distilbench.prepare import document_codes
from distilbench.prepare.prepared import Prepared, load_prepared
from distilbench.prepare.static_start import load_static_start, static_start_artifact
from distilbench.prepare.tokens import load_tokens, tokens_artifact
from distilbench.records import ScoreRecord, append_records, read_records
from distilbench.settings.commands import IndexSettings
from distilbench.storage.arrays import unpacked
from distilbench.storage.store import ArtifactStore
from distilbench.trials.rung_training import build_method
from distilbench.trials.scoring import Candidate, Scoring, across, encode_method, score_candidate

TEXTS = random_sentences(150, seed=8)
QUESTIONS = ["what can you pay", "how do i open the big red door today", "the dog", *random_sentences(5, seed=9)]
HPD: dict[str, Any] = {"output_dim": 8, "lr": 0.01, "batch_size": 16, "nested": True, "widths": [4]}
MSE: dict[str, Any] = {"output_dim": 16, "lr": 0.01, "batch_size": 16}
STATIC: dict[str, Any] = {"output_dim": 8, "lr": 0.01, "batch_size": 16, "table": "int4"}
BEFORE = Prompts("what is ", "what is ", "how do i ")


@pytest.fixture(scope="module")
def run(
    tmp_path_factory: pytest.TempPathFactory, prepared_folder: Path, data_folder: Path, narrow_encoder_folder: Path
) -> Path:
    """A run with three students, scored with their own documents and with their teacher's: HPD at two widths, read with
    prompts; MSE, narrower than its teacher; and a static one whose table is in int4."""
    run = tmp_path_factory.mktemp("pairs") / "run"
    shutil.copytree(prepared_folder, run / "prepared")
    described = json.loads((run / "prepared" / "prepared.json").read_text())
    described["teacher"] |= {"query_prompt": BEFORE.query, "document_prompt": BEFORE.document, "max_tokens": 10}
    (run / "prepared" / "prepared.json").write_text(json.dumps(described))
    own, corpus = load_prepared(run / "prepared"), folder_corpus(data_folder, Limits())
    store = ArtifactStore(run / "store")
    start = static_start_artifact(own.teacher, store)
    texts = CorpusText((prepared_folder / "sentences.txt").read_text().split("\n"), "the small corpus")
    tokens = load_tokens(tokens_artifact(texts, own.teacher, store, static=start))
    students: dict[str, tuple[Prepared, str, dict[str, Any]]] = {
        "hpd": (replace(own, student_prompts=BEFORE), "hpd", HPD),
        "mse": (replace(own, student=str(narrow_encoder_folder)), "mse", MSE),
        "static": (replace(own, student="static", static=load_static_start(start), tokens=tokens), "hpd", STATIC),
    }
    for name, (prepared, method_name, params) in students.items():
        method = build_method(method_name, params, prepared, 0, "cpu").eval()
        method.export(run / "students" / name)
        encoded = encode_method(method, corpus, f"students/{name}")
        whole = int(params["output_dim"])
        student = Candidate("run", "student", method_name, whole, method.params.model_dump(), 0, configuration=name)
        setting, widths = Scoring(run, prepared, corpus), method.widths_of(method.params.model_dump())
        pair = across(student, setting)
        assert encoded.space is not None and pair is not None
        for candidate, dims in ((student, widths), pair):
            scored = score_candidate(candidate, encoded, setting, dims, ["int8"])
            append_records(run / "scores.jsonl", [record for record, _ in scored])
    return run


def record_of(run: Path, name: str, dim: int, quantisation: str) -> ScoreRecord:
    rows = [r for r in read_records(run / "scores.jsonl") if isinstance(r, ScoreRecord) and r.documents]
    (record,) = (r for r in rows if (r.configuration, r.dim, r.quantisation) == (name, dim, quantisation))
    return record


def export(run: Path, record: ScoreRecord, out: Path, *more: str) -> Any:
    arguments = ["export", str(run), "--student", record.record_id, "--to", str(out), *more]
    return CliRunner().invoke(app, arguments)


@pytest.fixture(scope="module")
def exported(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int, str], Path]:
    """The export of a pair, by its student, dimensions and code; each is made once."""
    made: dict[tuple[str, int, str], Path] = {}

    def folder(*which: Any) -> Path:
        if which not in made:
            out = tmp_path_factory.mktemp("exports") / "pair"
            result = export(run, record_of(run, *which), out)
            assert result.exit_code == 0, result.output
            made[which] = out
        return made[which]

    return folder


Exported = Callable[[str, int, str], Path]


def both_sides(run: Path, name: str) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """What was scored: the student's vectors of `QUESTIONS` and the teacher's of `TEXTS`, where they compare."""
    space = SharedSpace.load(run / "spaces" / name)
    assert space is not None
    student = EncoderSpec(str(run / "students" / name)).load()
    teacher = load_prepared(run / "prepared").teacher
    asked = encode(student, QUESTIONS, prompt=BEFORE.query if name == "hpd" else "")
    return space.queries(asked), space.documents(encode(teacher.load(), TEXTS, prompt=teacher.document_prompt))


# --- The export


@pytest.mark.parametrize(
    "which", [("hpd", 8, "int8"), ("hpd", 4, "int8"), ("mse", 32, "float32"), ("static", 8, "int8")]
)
def test_the_folder_gives_the_vectors_that_were_scored(run: Path, exported: Exported, which: Any) -> None:
    name, dim, quantisation = which
    out, (queries, documents) = exported(*which), both_sides(run, name)
    model = SentenceTransformer(str(out), device="cpu")
    np.testing.assert_allclose(model.encode_query(QUESTIONS), queries[:, :dim], atol=1e-5)
    np.testing.assert_allclose(model.encode_document(TEXTS), documents[:, :dim], atol=1e-5)
    np.testing.assert_array_equal(model.encode(TEXTS[:3]), model.encode_document(TEXTS[:3]))
    assert model.get_embedding_dimension() == dim
    if quantisation != "float32":
        kept = run / "spaces" / name / (f"d{dim}" if name == "hpd" else "")
        wanted = Code.load(quantisation, kept, dim).encode(documents[:, :dim])
        np.testing.assert_array_equal(Code.load(quantisation, out, dim).encode(documents[:, :dim]), wanted)
    record = json.loads((out / "record.json").read_text())["records"][0]
    assert record["documents"] == record_of(run, *which).documents


def test_a_static_students_table_in_int4_is_in_int8_beside_its_teacher(run: Path, exported: Exported) -> None:
    folders = run / "students" / "static", exported("static", 8, "int8") / "query_0_StaticEmbedding"
    packed, codes = (load_file(folder / "model.safetensors") for folder in folders)
    np.testing.assert_array_equal(unpacked(packed["packed"], len(packed["weights"])), codes["embeddings"])
    np.testing.assert_array_equal(packed["weights"], codes["weights"])


def test_the_card_says_what_is_whose(run: Path, exported: Exported, monkeypatch: pytest.MonkeyPatch) -> None:
    out, record = exported("hpd", 8, "int8"), record_of(run, "hpd", 8, "int8")
    card = (out / "README.md").read_text()
    assert record.documents.endswith(", its PCA") and record.prompts == {"query": "what is ", "document": "how do i "}
    assert f"| Documents | {record.documents} (" in card and "| Queries | the student (" in card
    assert "Scores are of the pair" in card and "a document's kept in 8 bytes (int8)" in card
    (load,) = re.findall(r"```python\n(.*?)\n```", card, re.S)
    assert "model.encode_query(" in load and "model.encode_document(" in load
    monkeypatch.chdir(out)
    names: dict[str, Any] = {}
    exec(load, names)
    assert names["queries"].shape == (1, 8) and names["codes"].shape == (2, 8)


def test_a_teacher_that_cuts_its_vectors_does_so_in_its_route(run: Path, tmp_path: Path, encoder_folder: Path) -> None:
    teacher = SentenceTransformer(str(encoder_folder), device="cpu", truncate_dim=8)
    teacher.save(str(tmp_path / "teacher"), create_model_card=False)
    write_router(run / "students" / "hpd", SharedSpace(8), EncoderSpec(str(tmp_path / "teacher")), 8, tmp_path / "pair")
    pair = SentenceTransformer(str(tmp_path / "pair"), device="cpu")
    np.testing.assert_allclose(pair.encode_document(TEXTS[:9]), teacher.encode(TEXTS[:9]), atol=1e-5)


def test_a_student_with_its_own_documents_is_exported_as_before(run: Path, tmp_path: Path) -> None:
    rows = [r for r in read_records(run / "scores.jsonl") if isinstance(r, ScoreRecord) and not r.documents]
    (record,) = (r for r in rows if (r.configuration, r.quantisation) == ("mse", "float32"))
    assert export(run, record, tmp_path / "own").exit_code == 0
    assert not (tmp_path / "own" / "router_config.json").exists() and not (tmp_path / "own" / "documents").exists()
    card = (tmp_path / "own" / "README.md").read_text()
    assert "| Dimensions | 16 |" in card and "documents by" not in card


@pytest.mark.slow
def test_the_graph_is_the_query_encoder(run: Path, exported: Exported, tmp_path: Path) -> None:
    out = Path(shutil.copytree(exported("hpd", 4, "int8"), tmp_path / "pair"))
    onnx_input = write_onnx(out, "hpd")
    assert onnx_input.prompt == "what is " and onnx_input.document_prompt is None
    np.testing.assert_allclose(run_onnx(out, onnx_input, QUESTIONS), both_sides(run, "hpd")[0][:, :4], atol=1e-5)


def with_given_teacher(run: Path, folder: Path) -> Path:
    """The run as if its teacher's vectors were given, of which there is no encoder."""
    shutil.copytree(run, folder)
    file = folder / "prepared" / "prepared.json"
    described = json.loads(file.read_text())
    described["teacher"] = {"name": str(folder / "tiny.parquet"), "vectors": "text"}
    file.write_text(json.dumps(described))
    lines = [json.loads(line) for line in (folder / "scores.jsonl").read_text().splitlines()]
    for line in lines:
        line["source"] = described["teacher"]["name"]
    (folder / "scores.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


@pytest.mark.parametrize("which", [("hpd", 4, "int8"), ("mse", 32, "float32")])
def test_where_the_teachers_vectors_were_given_it_is_the_query_encoder(
    run: Path, tmp_path: Path, which: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, dim, _ = which
    own, out = with_given_teacher(run, tmp_path / "run"), tmp_path / "pair"
    result = export(own, record_of(own, *which), out)
    assert result.exit_code == 0, result.output
    queries, documents = both_sides(run, name)
    model = SentenceTransformer(str(out), device="cpu")
    np.testing.assert_allclose(model.encode_query(QUESTIONS), queries[:, :dim], atol=1e-5)
    card = (out / "README.md").read_text()
    assert "their vectors were given" in card and "encode_document" not in card
    code = next(iter(re.findall(r"```python\n(.*?)\n```", card, re.S)))
    teacher = load_prepared(run / "prepared").teacher
    np.save(out / "vectors.npy", encode(teacher.load(), TEXTS, prompt=BEFORE.document))
    monkeypatch.chdir(out)
    names: dict[str, Any] = {}
    exec(code, names)
    np.testing.assert_allclose(names["vectors"], documents[:, :dim], atol=1e-5)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ("space", "spaces/hpd: the space of hpd, d=8, teacher's documents: it is not there, expected 8"),
        ("width", "spaces/hpd: the space of hpd, d=8, teacher's documents: it has 6 dimensions, expected 8"),
        ("teacher", "hpd, d=8, teacher's documents: what it is made from is not as it was: "),
        ("code", "the int8 quantiser of hpd, d=8, teacher's documents is not there"),
    ],
)
def test_a_pair_that_is_not_whole_is_one_error(run: Path, tmp_path: Path, broken: str, message: str) -> None:
    own = Path(shutil.copytree(run, tmp_path / "run"))
    space = own / "spaces" / "hpd" / "space.json"
    if broken == "space":
        space.unlink()
    elif broken == "width":
        space.write_text(json.dumps(json.loads(space.read_text()) | {"width": 6}))
    elif broken == "teacher":
        (own / "prepared" / "prepared.json").unlink()
    else:
        (own / "spaces" / "hpd" / "d8" / "quantisation-int8.faiss").unlink()
    result = export(own, record_of(own, "hpd", 8, "int8"), tmp_path / "out")
    assert result.exit_code == 2 and message in result.stderr and result.stderr.count("\n") == 1, result.output
    assert not (tmp_path / "out").exists()


# --- The index


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three shards of 64 documents, in this process."""
    from contextlib import nullcontext

    def run_here(task: Any, shards: Any, *_: Any, **__: Any) -> None:
        make = task.load()
        for shard in shards:
            make(*shard)

    monkeypatch.setitem(document_codes.SHARD_ROWS, "cpu", 64)
    monkeypatch.setattr(document_codes, "run_pool", run_here)
    monkeypatch.setattr("distilbench.commands.index.on_cluster", lambda *_: nullcontext())


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.tsv"
    path.write_text("doc_id\ttext\n" + "".join(f"d{i}\t{text}\n" for i, text in enumerate(TEXTS)))
    return path


def vectors_file(path: Path, texts: list[str], vectors_ND: NDArray[Any]) -> Path:
    pq.write_table(pa.table({"text": texts, "vector": list(vectors_ND.astype(np.float32))}), path)
    return path


def indexed(tmp_path: Path, student: Path, documents: Path, **options: Any) -> dict[str, Any]:
    settings = {"student": str(student), "documents": documents, "out": tmp_path / "out", "store": tmp_path / "store"}
    return index(IndexSettings(**{**settings, **options}), Console(quiet=True))


def searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, question: str) -> list[str]:
    """What the README's Python finds."""
    (code,) = re.findall(r"```python\n(.*?)```", (tmp_path / "out" / "README.md").read_text(), re.S)
    assert "distilbench" not in code and "encode_query" in code
    monkeypatch.chdir(tmp_path / "out")
    names: dict[str, Any] = {"print": lambda found: names.update(found=found)}
    exec(code.replace("How do I reset my password?", question), names)
    return list(names["found"])


def best_of(queries: NDArray[np.float32], documents: NDArray[np.float32], question: int) -> list[str]:
    return [f"d{i}" for i in np.argsort(-(unit(documents) @ unit(queries)[question]))[:10]]


@pytest.mark.parametrize("which", [("hpd", 4, "float32"), ("hpd", 8, "int8"), ("static", 8, "float32")])
def test_documents_go_by_the_teacher_and_queries_by_the_student(
    run: Path, exported: Exported, tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch, which: Any
) -> None:
    name, dim, kind = which
    manifest = indexed(tmp_path, exported(*which), corpus)
    assert (manifest["code"], manifest["dimensions"]) == (kind, dim)
    queries, documents = both_sides(run, name)
    for place in (0, 1):
        found, wanted = (
            searched(tmp_path, monkeypatch, QUESTIONS[place]),
            best_of(queries[:, :dim], documents[:, :dim], place),
        )
        assert found == wanted if kind == "float32" else len({*found} & {*wanted}) >= 8


def test_another_query_encoder_in_the_same_space_encodes_no_document_again(
    exported: Exported, tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    indexed(tmp_path, exported("hpd", 8, "float32"), corpus)
    first = (tmp_path / "out" / "index.faiss").read_bytes()
    with monkeypatch.context() as patched:
        patched.setattr(document_codes, "run_pool", None)
        indexed(tmp_path, exported("static", 8, "float32"), corpus)
    assert (tmp_path / "out" / "index.faiss").read_bytes() == first
    assert str(exported("static", 8, "float32")) in (tmp_path / "out" / "README.md").read_text()


def test_another_layer_after_the_router_encodes_the_documents_again(
    exported: Exported, tmp_path: Path, corpus: Path
) -> None:
    """It is no part of either route, and acts on both."""
    pair, indexes = SentenceTransformer(str(exported("hpd", 8, "float32")), device="cpu"), []
    for seed in (0, 1):
        torch.manual_seed(seed)
        model = SentenceTransformer(modules=[*pair, Dense(8, 8)], prompts=pair.prompts, device="cpu")
        model.save(str(tmp_path / f"pair{seed}"), create_model_card=False)
        indexed(tmp_path, tmp_path / f"pair{seed}", corpus)
        indexes.append(faiss.read_index(str(tmp_path / "out" / "index.faiss")).reconstruct_n(0, 150))
    wanted = unit(model.encode_document(TEXTS))
    np.testing.assert_allclose(indexes[1], wanted, atol=1e-5)
    assert np.abs(indexes[0] - wanted).max() > 0.1


def test_vectors_that_exist_become_the_index(
    run: Path, exported: Exported, tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    teacher = load_prepared(run / "prepared").teacher
    vectors = encode(teacher.load(), TEXTS, prompt=BEFORE.document)
    file = vectors_file(tmp_path / "own.parquet", TEXTS[::-1], vectors[::-1])
    whole = exported("hpd", 8, "float32")
    indexed(tmp_path, whole, corpus)
    encoded = faiss.read_index(str(tmp_path / "out" / "index.faiss")).reconstruct_n(0, 150)

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("nothing is encoded")

    monkeypatch.setattr(document_codes, "run_pool", refuse)
    both = tmp_path / "both.parquet"  # the file of the vectors has the documents, too
    pq.write_table(pq.read_table(file).append_column("key", pa.array(range(149, -1, -1))), both)
    for documents, vectors_of, more in ((corpus, file, {}), (both, both, {"id_column": "key"})):
        manifest = indexed(tmp_path, whole, documents, teacher_vectors=vectors_of, **more)
        assert set(manifest["documents"]["vectors"]) == {vectors_of.name, "column"}
        taken = faiss.read_index(str(tmp_path / "out" / "index.faiss")).reconstruct_n(0, 150)
        taken = taken[:: -1 if more else 1]
        np.testing.assert_allclose(taken, encoded, atol=2e-3)  # float16
    assert (tmp_path / "out" / "ids.txt").read_text().split() == [str(i) for i in range(149, -1, -1)]
    # The query encoder alone finds the same, and its document side is nothing but the vectors.
    own, alone = with_given_teacher(run, tmp_path / "run"), tmp_path / "alone"
    assert export(own, record_of(own, "hpd", 8, "float32"), alone).exit_code == 0
    with pytest.raises(InputError, match=r"documents without a teacher: .* expected --teacher-vectors"):
        indexed(tmp_path, alone, corpus)
    indexed(tmp_path, alone, corpus, teacher_vectors=file)
    queries, documents = both_sides(run, "hpd")
    assert len({*searched(tmp_path, monkeypatch, QUESTIONS[1])} & {*best_of(queries, documents, 1)}) >= 9


def test_an_index_that_exists_is_kept(
    run: Path, exported: Exported, tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries, documents = both_sides(run, "mse")
    held = faiss.IndexFlatIP(32)
    held.add(unit(documents))
    faiss.write_index(held, str(tmp_path / "team.faiss"))
    manifest = indexed(tmp_path, exported("mse", 32, "float32"), corpus, index=str(tmp_path / "team.faiss"))
    assert manifest["index"]["file"] == str(tmp_path / "team.faiss") and manifest["index"]["kind"] == "IndexFlatIP"
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == sorted([MANIFEST, "README.md", "ids.txt"])
    assert searched(tmp_path, monkeypatch, QUESTIONS[1]) == best_of(queries, documents, 1)
    # Without an encoder of the teacher it is tried with vectors of the documents.
    own, alone = with_given_teacher(run, tmp_path / "run"), tmp_path / "alone"
    assert export(own, record_of(own, "mse", 32, "float32"), alone).exit_code == 0
    file = vectors_file(tmp_path / "own.parquet", TEXTS, documents)
    indexed(tmp_path, alone, corpus, index=str(tmp_path / "team.faiss"), teacher_vectors=file)
    assert searched(tmp_path, monkeypatch, QUESTIONS[1]) == best_of(queries, documents, 1)
    shifted = vectors_file(tmp_path / "other.parquet", TEXTS, documents[:, ::-1])
    with pytest.raises(InputError, match=r"team\.faiss: it finds \d of 16 documents by their own vectors; expected an"):
        indexed(tmp_path, alone, corpus, index=str(tmp_path / "team.faiss"), teacher_vectors=shifted)


def test_what_does_not_belong_together_is_one_error(
    run: Path, exported: Exported, tmp_path: Path, corpus: Path, encoder_folder: Path
) -> None:
    pair, teacher = exported("hpd", 8, "float32"), load_prepared(run / "prepared").teacher
    vectors = encode(teacher.load(), TEXTS, prompt=BEFORE.document)
    rng = np.random.default_rng(0)
    narrow = vectors_file(tmp_path / "narrow.parquet", TEXTS, vectors[:, :20])
    other = vectors_file(tmp_path / "other.parquet", TEXTS, rng.standard_normal(vectors.shape))
    less = vectors_file(tmp_path / "less.parquet", TEXTS[:7] + TEXTS[8:], np.delete(vectors, 7, axis=0))
    for name, rows, dim in (("wide", 150, 32), ("few", 9, 8), ("random", 150, 8)):
        held = faiss.IndexFlatL2(dim)
        held.add(unit(rng.standard_normal((rows, dim)).astype(np.float32)))
        faiss.write_index(held, str(tmp_path / f"{name}.faiss"))
    faiss.write_index(faiss.IndexIDMap(faiss.IndexFlatIP(8)), str(tmp_path / "ids.faiss"))
    (tmp_path / "text.faiss").write_text("no index")
    for options, said in [
        (
            {"teacher_vectors": narrow},
            r"narrow\.parquet: vectors of 20 dimensions; expected 32, those of the teacher of",
        ),
        (
            {"teacher_vectors": other},
            r"other\.parquet: not by the teacher of .* a cosine of -?0\.\d\d \(median\); expected",
        ),
        (
            {"teacher_vectors": less},
            rf"corpus\.tsv, row 9: no vector of document 'd7' \('{TEXTS[7]}'\) in .*less\.parquet",
        ),
        ({"teacher_vectors": tmp_path / "no.parquet"}, r"no\.parquet: no such file; expected NAME\.parquet"),
        (
            {"teacher_vectors": narrow, "student": encoder_folder},
            r"searches documents that it embeds itself; expected the",
        ),
        ({"index": str(tmp_path / "wide.faiss")}, r"wide\.faiss: 32 dimensions; expected 8, those of the queries of"),
        ({"index": str(tmp_path / "few.faiss")}, r"few\.faiss: 9 vectors; expected 150, as many as --documents with a"),
        ({"index": str(tmp_path / "random.faiss")}, r"random\.faiss: it finds \d of 16 documents by their own vectors"),
        ({"index": str(tmp_path / "ids.faiss")}, r"ids\.faiss: it has ids of its own"),
        ({"index": str(tmp_path / "text.faiss")}, r"text\.faiss: FAISS cannot read it"),
        ({"index": str(tmp_path / "no.faiss")}, r"--index .*no\.faiss: no such file; expected flat, ivf, hnsw, or"),
        ({"index": str(tmp_path / "wide.faiss"), "code": "int8"}, r"--code int8: expected none with --index"),
    ]:
        with pytest.raises(InputError, match=said):
            indexed(tmp_path, options.pop("student", pair), corpus, **options)
        assert not (tmp_path / "out").exists()


def test_a_router_needs_a_route_for_each_role(exported: Exported, tmp_path: Path, corpus: Path) -> None:
    pair = Path(shutil.copytree(exported("hpd", 8, "float32"), tmp_path / "pair"))
    with pytest.raises(InputError, match=r"routes of its own \(query, document\), which `index` alone reads"):
        EncoderSpec(str(pair)).check("model")
    file = pair / "router_config.json"
    described = json.loads(file.read_text())
    described["structure"]["passage"] = described["structure"].pop("document")
    described["parameters"]["default_route"] = "passage"
    file.write_text(json.dumps(described))
    with pytest.raises(
        InputError, match=r"no route for a document, only query, passage; expected a Router with the rou"
    ):
        indexed(tmp_path, pair, corpus)
