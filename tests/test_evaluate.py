"""`distilbench evaluate`, from data folder and encoders to records and page, on small real encoders."""

from __future__ import annotations

import json
import lzma
import random
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from samples import make_data, make_encoder, random_sentences, write_tsv
from scipy.stats import pearsonr, spearmanr
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Router
from typer.testing import CliRunner

from distilbench.choices import EVERY_TASK
from distilbench.cli import app
from distilbench.cluster.provenance import INSTRUCTIONS
from distilbench.commands.evaluate import Evaluation, evaluate
from distilbench.data.evaluation_sets import evaluation_corpus
from distilbench.data.folder import Limits
from distilbench.encoders.encoder import EncoderSpec
from distilbench.encoders.encoding import encode
from distilbench.errors import InputError, NotAllScored
from distilbench.evaluation.encoders import Vectors
from distilbench.evaluation.examples import Examples, answered
from distilbench.evaluation.predictions import Predictions, predictions_path
from distilbench.evaluation.sts import cosine, spearman
from distilbench.records import ScoreRecord, read_records
from distilbench.settings.commands import EvaluateSettings


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small data folder with one of everything that is evaluated on."""
    folder = make_data(tmp_path_factory.mktemp("evaluation") / "everything", searched="test")
    texts, rng = random_sentences(900, seed=77), random.Random(3)
    labels = [int("dog" in text or "cat" in text) for text in texts]
    write_tsv(folder / "sc" / "MR.tsv", ["text", "label"], [[t, n] for t, n in zip(texts[:120], labels, strict=False)])
    pairs = [(a, rng.choice([a, b])) for a, b in zip(texts[200:500], texts[500:800], strict=True)]
    rows = [[a, b, int(a == b)] for a, b in pairs]
    for split, part in (("train", rows[:180]), ("dev", rows[180:240]), ("test", rows[240:])):
        write_tsv(folder / "glue" / f"MRPC.{split}.tsv", ["sentence1", "sentence2", "label"], part)
    return folder


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    root = tmp_path_factory.mktemp("models")
    return [make_encoder(root / "wide", width=32, layers=2), make_encoder(root / "other", width=32, layers=1, seed=9)]


def settings(root: Path, models: list[Path], data: Path | None, **given: Any) -> EvaluateSettings:
    known = {
        "model": tuple(map(str, models)),
        "data": str(data) if data else None,
        "tasks": EVERY_TASK,
        "indexes": ("flat", "ivf"),
        "cost": False,
        "runs": root / "runs",
        "store": root / "store",
        "name": "e",
    }
    return EvaluateSettings.model_validate({**known, **given})


def records_of(root: Path) -> list[ScoreRecord]:
    return [r for r in read_records(root / "runs" / "e" / "scores.jsonl") if isinstance(r, ScoreRecord)]


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory, models: list[Path], data: Path) -> Path:
    """Both encoders, the first of them as teacher, at two widths and three quantisations."""
    root = tmp_path_factory.mktemp("evaluated")
    given = {"teacher": str(models[0]), "dims": (8,), "quantise": ("int8", "binary"), "cost": True}
    page = evaluate(settings(root, models, data, **given), Console(quiet=True))
    assert page == root / "reports" / "e" / "index.html"
    return root


def test_a_row_for_each_encoder_width_and_quantisation(evaluated: Path) -> None:
    found = {(r.label, r.dim, r.quantisation): r for r in records_of(evaluated)}
    names = [("wide", 32), ("wide d=8", 8), ("other", 32), ("other d=8", 8)]
    assert found.keys() == {(n, d, q) for n, d in names for q in ("float32", "int8", "binary")}
    assert {found[key].role for key in found if key[0] == "wide"} == {"teacher"}
    assert {found[key].role for key in found if key[0] != "wide"} == {"encoder"}
    assert [found["wide", 32, q].bytes_per_vector for q in ("float32", "int8", "binary")] == [128, 32, 4]
    whole = found["wide", 32, "float32"]
    assert {s.task for s in whole.scores} == {"sts", "classification", "retrieval", "pair-probe"}
    assert {s.metric for s in whole.scores if s.task == "retrieval"} == {
        "mrr@10", "ndcg@10", "map@100", "recall@1", "recall@10",
    }  # fmt: skip
    assert any("recall@100" in note for note in whole.notes)  # of 60 documents, which any encoder finds
    sets = ("quora", "flat"), ("quora/pairs", "flat"), ("quora/pairs", "ivf")  # lists are of the largest alone
    assert {(c.set, c.kind) for c in whole.indexes} == set(sets)
    assert {(c.set, c.kind) for c in found["wide", 32, "int8"].indexes} == {(name, "int8") for name, _ in sets}
    assert {s.task for s in found["wide d=8", 8, "float32"].scores} == {"sts", "retrieval"}
    assert whole.cost is not None and whole.parameters > whole.cost.parameters_without_embeddings > 0
    assert found["wide d=8", 8, "float32"].cost is None


def test_scores_are_those_of_the_encoder_itself(evaluated: Path, models: list[Path], data: Path) -> None:
    lines = [line.split("\t") for line in (data / "sts" / "STSB.test.tsv").read_text().splitlines()[1:]]
    left, right, gold = zip(*lines, strict=True)
    model = EncoderSpec(str(models[1])).load()
    vectors = [encode(model, side) for side in (left, right)]
    for dim in (32, 8):
        record = next(r for r in records_of(evaluated) if r.label.startswith("other") and r.dim == dim)
        similarity = cosine(*(v[:, :dim] for v in vectors))
        for metric, correlation in (("spearman", spearmanr), ("pearson", pearsonr)):
            [score] = [
                s for s in record.scores if (s.task, s.set, s.split, s.metric) == ("sts", "STSB", "test", metric)
            ]
            wanted = 100 * correlation(similarity, np.array(gold, dtype=float)).statistic
            # In a set of 40 pairs the rounding of a sentence's cosine with itself moves Spearman by up to 0.1.
            assert score.value == pytest.approx(wanted, abs=0.1 if metric == "spearman" else 1e-3)
            assert score.low is not None and score.high is not None and score.low < score.value < score.high


def test_every_score_of_a_test_split_has_an_interval_and_its_items(evaluated: Path) -> None:
    for record in records_of(evaluated):
        exact = record.quantisation == "float32"
        assert all(s.low is not None for s in record.scores if s.split == "test" and (exact or s.task == "sts"))
        kept = Predictions.load(predictions_path(evaluated / "runs" / "e", record.record_id))
        tested = [s for s in record.scores if (s.split, s.variant) == ("test", "all")]
        values = {f"{s.task}/{s.set}/{s.metric}": s.value for s in tested}
        for name, items in kept.test.items():
            value = spearman(*items[:2]) if items.gold_P is not None else 100 * items.value_P.mean()
            assert value == pytest.approx(values[name], abs=0.3)  # over folds a mean of means
        assert ("classification/MR/accuracy" in kept.test) == (exact and record.dim == 32)


def test_a_rows_page_shows_what_it_loses_unless_the_data_forbid_it(
    evaluated: Path, models: list[Path], data: Path, tmp_path: Path
) -> None:
    corpus = evaluation_corpus(data, ("sts", "retrieval"), Limits())
    judged = next(s for s in corpus.retrieval if (s.name, s.split) == ("quora", "test"))
    queries = [corpus.sentences[row] for row in judged.queries]
    silent = shutil.copytree(data, tmp_path / data.name)
    (silent / "about.json").write_text('{"show": false, "text": "from here"}')
    given = {"teacher": str(models[0]), "store": evaluated / "store", "tasks": ("sts", "retrieval")}
    evaluate(settings(tmp_path, models, silent, **given), Console(quiet=True))
    for root in (evaluated, tmp_path):
        run, record = root / "runs" / "e", next(r for r in records_of(root) if (r.label, r.dim) == ("other", 32))
        kept = {r.label: Predictions.load(predictions_path(run, r.record_id)) for r in records_of(root)[::-1]}
        lost_Q = answered(kept["wide"], "quora") & ~answered(kept["other"], "quora")
        examples = Examples.load(run, record.record_id)
        assert examples is not None and examples.searches["quora"].lost == lost_Q.sum() > 0
        expected = [queries[q] for q in np.flatnonzero(lost_Q)] if root == evaluated else []
        assert [query.query for query in examples.searches["quora"].lost_examples] == expected
        pages = [path.read_text() for path in (root / "reports" / "e").rglob("*.html")]
        assert all(any(query in page for page in pages) for query in expected)
    written = [
        path.read_bytes() for place in ("runs", "reports") for path in (tmp_path / place).rglob("*") if path.is_file()
    ]
    written.append(lzma.decompress((tmp_path / "reports" / "e" / "records.jsonl.xz").read_bytes()))
    assert not any(text in file for file in written for text in (*(query.encode() for query in queries), b"from here"))
    assert any(b"forbid" in file for file in written)


def test_the_page_has_it_all(evaluated: Path) -> None:
    page = (evaluated / "reports" / "e" / "index.html").read_text()
    for heading in (
        "p95, ms",
        "Index cost",
        "Classification",
    ):
        assert heading in page, heading
    assert "Not found: sts/STS13" in page and "95 % bootstrap interval over the items" in page
    assert "Seven-set average" not in page  # two of the seven sets are here


def test_again_nothing_is_scored_and_more_is_added(
    evaluated: Path, models: list[Path], data: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before = (evaluated / "runs" / "e" / "scores.jsonl").read_bytes()
    given = {"teacher": str(models[0]), "quantise": ("int8", "binary"), "cost": True}
    with monkeypatch.context() as patch:
        patch.setattr("distilbench.commands.evaluate.CorpusEncoding", None)
        evaluate(settings(evaluated, models, data, dims=(8,), **given), Console(quiet=True))
    assert (evaluated / "runs" / "e" / "scores.jsonl").read_bytes() == before
    evaluate(settings(evaluated, models[:1], data, dims=(8, 4), **given), Console(quiet=True))
    after = (evaluated / "runs" / "e" / "scores.jsonl").read_bytes()
    assert after.startswith(before) and len(after.splitlines()) == len(before.splitlines()) + 3
    with pytest.raises(InputError, match=r"(?s)e: .*kinds"):
        evaluate(settings(evaluated, models, data, tasks=("sts",), **given), Console(quiet=True))


def broken(folder: Path, models: list[Path], tensor: str, value: float) -> Path:
    """A copy of an encoder with one tensor set to a value."""
    from safetensors.torch import load_file, save_file

    shutil.copytree(models[1], folder)
    [weights] = folder.rglob("model.safetensors")
    tensors = load_file(weights)
    [name] = [n for n in tensors if n.endswith(tensor)]
    tensors[name][:] = value
    save_file(tensors, weights, metadata={"format": "pt"})
    return folder


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (float("nan"), r"the encoder's vector is not finite for '.*'"),
        (0.0, r"the vector of '.*' is zero or not finite"),
    ],
)
def test_an_encoder_that_cannot_be_scored_does_not_keep_the_others_from_it(
    value: float, message: str, tmp_path: Path, models: list[Path], data: Path
) -> None:
    bad = broken(tmp_path / "bad", models, "layer.0.output.LayerNorm.weight", value)
    if value == 0:
        both = broken(tmp_path / "worse", [bad, bad], "layer.0.output.LayerNorm.bias", 0.0)
        bad = both
    with pytest.raises(InputError, match=rf"^1 of 2 models not scored: encoder '{bad}': {message}"):
        evaluate(settings(tmp_path, [bad, models[0]], data, tasks=("sts",)), Console(quiet=True))
    assert [r.label for r in records_of(tmp_path)] == ["wide"]
    assert "Not scored: " in (tmp_path / "reports" / "e" / "index.html").read_text()


def test_an_error_of_one_model_that_nobody_foresaw_is_one_line(
    tmp_path: Path, models: list[Path], data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Evaluation._vectors

    def vectors(self: Evaluation, spec: EncoderSpec) -> Vectors:
        if spec.title == "other":
            raise RuntimeError("no such\nthing")
        return real(self, spec)

    monkeypatch.setattr(Evaluation, "_vectors", vectors)
    (tmp_path / "gone").mkdir()
    with pytest.raises(
        NotAllScored, match=r"^2 of 3 models not scored: encoder .*gone.*other': RuntimeError: no such \("
    ) as e:
        evaluate(
            settings(tmp_path, [tmp_path / "gone", models[1], models[0]], data, tasks=("sts",)), Console(quiet=True)
        )
    assert e.value.status == 1
    assert [r.label for r in records_of(tmp_path)] == ["wide"]
    assert "no such" in (tmp_path / "reports" / "e" / "index.html").read_text()


def test_another_similarity_of_the_model_is_told(
    tmp_path: Path, models: list[Path], data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dot = Path(shutil.copytree(models[0], tmp_path / "dot"))
    config = dot / "config_sentence_transformers.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "similarity_fn_name": "dot"}))
    page = evaluate(settings(tmp_path, [dot, models[1]], data, tasks=("sts",)), Console(soft_wrap=True))
    told = "dot: the model asks for dot similarity, and is scored by cosine"
    assert capsys.readouterr().out.count(told) == 1 and told in page.read_text()


def test_an_encoder_that_reads_roles_in_its_own_ways_is_refused(tmp_path: Path, models: list[Path], data: Path) -> None:
    modules = list(SentenceTransformer(str(models[0]), device="cpu"))
    for first in (0, 1):  # the routes may begin behind the transformer
        ways = Router.for_query_document(query_modules=modules[first:], document_modules=modules[first:])
        model = SentenceTransformer(modules=[*modules[:first], ways], device="cpu")
        model.save(str(tmp_path / "two"), create_model_card=False)
        with pytest.raises(InputError, match=r"two': it has routes of its own \(query, document\)"):
            evaluate(settings(tmp_path, [tmp_path / "two"], data, tasks=("sts",)), Console(quiet=True))
        shutil.rmtree(tmp_path / "two")
    lengths = Path(shutil.copytree(models[0], tmp_path / "lengths")) / "sentence_bert_config.json"
    lengths.write_text(json.dumps({**json.loads(lengths.read_text()), "query_length": 8}))
    with pytest.raises(InputError, match=r"lengths': it has lengths of its own \(query_length\)"):
        EncoderSpec(str(tmp_path / "lengths")).check("model")


def test_a_code_that_needs_more_sentences_than_there_are_is_left_out_and_said(
    tmp_path: Path, models: list[Path], data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = Path(shutil.copytree(data, tmp_path / "few"))
    for folder in ("quora", "cqadupstack", "unlabeled", "nli"):
        shutil.rmtree(few / folder, ignore_errors=True)
    write_tsv(few / "unlabeled" / "text.tsv", ["text"], [[f"a sentence of number {i}"] for i in range(50)])
    evaluate(settings(tmp_path, models, few, tasks=("sts",), quantise=("int8", "pq4")), Console(soft_wrap=True))
    assert [r.quantisation for r in records_of(tmp_path)] == ["float32", "int8"] * 2
    assert "pq4: 50 sentences to calibrate on; expected at least 256" in capsys.readouterr().out


def test_cpus_are_the_threads_of_the_command(
    tmp_path: Path, models: list[Path], data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = list[int]()
    monkeypatch.setattr(Evaluation, "score", lambda *_: threads.append(torch.get_num_threads()))
    before = torch.get_num_threads()
    with pytest.raises(NotAllScored):
        evaluate(settings(tmp_path, models, data, tasks=("sts",), cpus=1), Console(quiet=True))
    assert threads == [1, 1] and torch.get_num_threads() == before


def test_vectors_of_several_widths_are_one_clear_error(
    tmp_path: Path, models: list[Path], data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import distilbench.prepare.encode as module

    monkeypatch.setattr(module, "SHARD_ROWS", {"cpu": 50})
    real, calls = module.encode, []

    def changing(*given: Any, **more: Any) -> Any:
        calls.append(1)
        return real(*given, **more)[:, : 32 if len(calls) != 3 else 16]

    monkeypatch.setattr(module, "encode", changing)
    with pytest.raises(InputError, match="it gave vectors of 16 and of 32 dimensions; expected one width"):
        evaluate(settings(tmp_path, models[:1], data, tasks=("sts",)), Console(quiet=True))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--tasks", "sts,glue"], "--tasks glue: expected some of sts, classification, retrieval, pairs"),
        (["--dims", "64,x"], "--dims x: expected numbers of dimensions"),
        (["--indexes", "lsh"], "--indexes lsh: expected one of flat, ivf, hnsw"),
        (["--indexes", "hnsw:1:2"], "--indexes hnsw:1:2: expected hnsw alone"),
        (["--indexes", "ivf:4:5"], "--indexes ivf:4:5: nprobe is above nlist"),
        (["--quantise", "int5"], "--quantise int5: expected int8, int4, int3, int2, binary, or one of FAISS"),
        (["--data", "nowhere"], "--data nowhere: no such folder"),
        (["--name", "a/b"], "--name 'a/b': expected a plain folder name"),
    ],
)
def test_bad_options_are_one_clear_error(
    options: list[str], message: str, tmp_path: Path, models: list[Path], data: Path
) -> None:
    import re

    given = ["--data", str(data), "--tasks", "sts,retrieval", "--no-cost"]
    for option, value in (("runs", "r"), ("store", "s")):
        given += [f"--{option}", str(tmp_path / value)]
    found = CliRunner().invoke(app, ["evaluate", str(models[0]), *given, *options])
    assert found.exit_code == 2 and re.search(message, found.stderr), found.stderr
    assert not (tmp_path / "r").exists()


def test_a_static_embedding_is_an_encoder_too(tmp_path: Path, models: list[Path], data: Path) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer

    words = Tokenizer.from_file(str(next(models[0].rglob("tokenizer.json"))))
    folder = tmp_path / "static"
    static = SentenceTransformer(modules=[StaticEmbedding(words, embedding_dim=24)], device="cpu")
    static.save(str(folder), create_model_card=False)
    evaluate(settings(tmp_path, [folder], data, tasks=("sts", "retrieval"), cost=True), Console(quiet=True))
    [record] = records_of(tmp_path)
    lines = [line.split("\t") for line in (data / "sts" / "STSB.test.tsv").read_text().splitlines()[1:]]
    similarity = cosine(*(static.encode(list(side)) for side in list(zip(*lines, strict=True))[:2]))
    wanted = 100 * pearsonr(similarity, [float(line[2]) for line in lines]).statistic
    [score] = [s for s in record.scores if (s.task, s.set, s.split, s.metric) == ("sts", "STSB", "test", "pearson")]
    assert record.dim == 24 and score.value == pytest.approx(wanted, abs=1e-3)
    assert record.parameters == 24 * words.get_vocab_size() and record.cost is not None
    assert record.cost.parameters_without_embeddings == 0


def test_the_pair_head_that_a_student_brings(tmp_path: Path, models: list[Path], data: Path) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Dense
    from sentence_transformers.sentence_transformer.modules import Normalize

    from distilbench.encoders.pair_head import PairHead, load_pair_scorer, save_pair_head

    torch.manual_seed(0)
    folder = tmp_path / "student"
    trunk = list(SentenceTransformer(str(models[0]), device="cpu"))[:2]
    modules = [*trunk, Dense(32, 16, activation_function=torch.nn.Identity()), Normalize()]
    SentenceTransformer(modules=modules, device="cpu").save(str(folder), create_model_card=False)
    everything = evaluation_corpus(data, EVERY_TASK, Limits())
    [task] = [t for t in everything.probed if t.name == "MRPC"]
    save_pair_head(folder, PairHead("concat", 16, 8, 1), task)
    evaluate(settings(tmp_path, [folder], data), Console(quiet=True))
    [record] = records_of(tmp_path)

    text, pairs = everything.sentences, task.splits["test"]
    sides = [[text[int(row)] for row in side] for side in (pairs.left_P, pairs.right_P)]
    right = (load_pair_scorer(folder).outputs(*sides)[:, 0] > 0) == (pairs.target_P == 1)
    [score] = [s for s in record.scores if (s.task, s.split, s.metric) == ("pairs", "test", "accuracy")]
    assert score.value == pytest.approx(100 * right.mean())


def test_an_encoder_that_says_the_same_of_everything_is_flagged(tmp_path: Path, models: list[Path], data: Path) -> None:
    zero = broken(tmp_path / "zero", models, "layer.0.output.LayerNorm.weight", 0.0)
    alike = broken(tmp_path / "alike", [zero, zero], "layer.0.output.LayerNorm.bias", 1.0)
    evaluate(settings(tmp_path, [alike], data, tasks=("sts",)), Console(quiet=True))
    [record] = records_of(tmp_path)
    assert all(s.value == 0 for s in record.scores if s.metric == "spearman")
    assert any("STSB (test): every pair has the same cosine" in note for note in record.notes)
    assert "every pair has the same cosine" in (tmp_path / "reports" / "e" / "index.html").read_text()


def test_int8_weights_are_rows_beside_the_teachers_float32(tmp_path: Path, models: list[Path], data: Path) -> None:
    given = {"teacher": str(models[0]), "tasks": ("sts", "retrieval"), "quantise": ("none",), "cost": True}
    given |= {"indexes": ("flat",)}
    evaluate(settings(tmp_path, models, data, backend="int8", **given), Console(quiet=True))
    names = ["wide", "wide, int8 weights", "other, int8 weights"]
    found = {r.label: r for r in records_of(tmp_path)}
    assert list(found) == names and found["wide"].role == "teacher"
    own, in_int8 = found["wide"], found["wide, int8 weights"]
    assert in_int8.cost and own.cost and in_int8.cost.bytes_on_disk < own.cost.bytes_on_disk
    assert in_int8.hyperparameters["backend"] == "int8" and "backend" not in own.hyperparameters
    has, told = torch.cpu.get_capabilities(), re.findall(r"\w+", own.provenance.device)
    assert [name for name in INSTRUCTIONS if has.get(name)] == [name for name in INSTRUCTIONS if name in told]
    scores = {(s.task, s.set, s.metric, s.variant, s.split): s.value for s in own.scores}
    differences = [scores[s.task, s.set, s.metric, s.variant, s.split] - s.value for s in in_int8.scores]
    assert 0 < np.abs(differences).max() < 10

    evaluate(settings(tmp_path, models[1:], data, **given), Console(quiet=True))
    assert [r.label for r in records_of(tmp_path)] == [*names, "other"], (
        "float32 beside them; the teacher stays as it was"
    )
