"""Static students: their start, their training by every method that takes one, their export; and what refuses them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from sentence_transformers import SentenceTransformer

from distilbench.data.sentences import CorpusText
from distilbench.encoders.encoder import EncoderSpec, is_packed
from distilbench.encoders.encoding import encode, token_ids
from distilbench.encoders.static import coded
from distilbench.encoders.student import check_student
from distilbench.errors import InputError
from distilbench.evaluation.faiss_codes import unit
from distilbench.methods import get_method, method_names
from distilbench.prepare.prepared import Prepared
from distilbench.prepare.static_start import load_static_start, static_start_artifact
from distilbench.prepare.tokens import load_tokens, tokens_artifact
from distilbench.reporting.loading import unpack_code
from distilbench.storage.arrays import packed, unpacked
from distilbench.storage.store import ArtifactStore
from distilbench.training.loop import Trainer
from distilbench.trials.scoring import count_parameters

TAKES: dict[str, dict[str, Any]] = {
    "contrastive": {},
    "hpd": {},
    "ibkd": {"beta1": 0.0, "beta2": 0.0},
    "matryoshka": {},
    "mcr2_distil": {"activation": "identity"},
    "mse": {"output_dim": 8},
}


def trained(method: Any, steps: int = 6) -> Any:
    Trainer(method, seed=0, budget=steps).train_until(steps)
    return method.eval()


def test_methods_that_take_it() -> None:
    assert {name for name in method_names() if get_method(name).takes_static} == set(TAKES)


@pytest.mark.parametrize("name", sorted(TAKES))
def test_trains_and_its_export_gives_what_it_embeds(
    name: str, static: Prepared, build: Callable[..., Any], sentences: list[str], tmp_path: Path
) -> None:
    method = build(name, on=static, **TAKES[name])
    start_Vd = method.static.table().copy()
    trained(method)
    assert not np.allclose(method.static.table(), start_Vd)
    rows = np.arange(40)
    embedded_Nd = method.embed(rows)
    assert embedded_Nd.shape == (40, 8)
    np.testing.assert_allclose(np.linalg.norm(embedded_Nd, axis=1), 1, rtol=1e-5)
    method.export(tmp_path / "student")
    model = SentenceTransformer(str(tmp_path / "student"))
    np.testing.assert_allclose(encode(model, sentences[:40]), embedded_Nd, atol=1e-5)


@pytest.mark.parametrize("name", ["hpd", "mse"])
def test_starts_as_the_teachers_tokens_after_a_regression_to_the_targets(
    name: str, static: Prepared, build: Callable[..., Any]
) -> None:
    rows, method = static.train, build(name, on=static, sif=0.01, output_dim=8)
    with torch.inference_mode():
        start_Nd = method.static(*static.tokens.flat(rows)).numpy()
    vectors_ND = static.vectors.take(rows) - (static.pca.mean_D if method.centred else 0)
    targets_Nd = vectors_ND @ static.pca.axes_DD[:, :8]
    count_V = np.bincount(static.tokens.flat(rows)[0], minlength=len(static.static.vectors_VD))
    weight_V = 0.01 / (0.01 + count_V / count_V.sum())
    means_ND = np.array([(weight_V[ids, None] * static.static.vectors_VD[ids]).mean(axis=0) for ids in static.tokens])
    if method.centred:  # of all tokens of the text, so that sentences have no mean
        mean_D = np.average(static.static.vectors_VD, axis=0, weights=count_V * weight_V)
        means_ND -= np.array([weight_V[ids].mean() for ids in static.tokens])[:, None] * mean_D
    means_ND = means_ND[rows]
    ridge = 0.1 * len(rows) * means_ND.var()
    map_Dd = np.linalg.solve(means_ND.T @ means_ND + ridge * np.eye(32), means_ND.T @ targets_Nd)
    wanted_Nd = means_ND @ map_Dd
    size = np.linalg.norm(start_Nd) / np.linalg.norm(wanted_Nd)
    np.testing.assert_allclose(start_Nd, size * wanted_Nd, atol=1e-3 * np.abs(start_Nd).max())


def test_frequent_tokens_start_with_less_weight(static: Prepared, build: Callable[..., Any]) -> None:
    count_V = np.bincount(static.tokens.flat(static.train)[0], minlength=len(static.static.vectors_VD))
    weight_V = build("hpd", on=static, sif=0.01).static.weights.detach().numpy()[:, 0]
    assert weight_V[count_V == 0].min() == 1
    order = np.argsort(count_V, kind="stable")
    assert (np.diff(weight_V[order]) <= 0).all() and weight_V[order[-1]] < 0.5


def test_reads_the_tokens_of_the_teacher_without_special_ones(
    static: Prepared, prepared: Prepared, sentences: list[str]
) -> None:
    teacher = prepared.teacher.load()
    for row, ids in enumerate(token_ids(teacher, sentences[:30])):
        assert static.tokens[row].tolist() == ids[1:-1]


def test_only_tokens_of_the_batches_change(static: Prepared, build: Callable[..., Any]) -> None:
    method = build("hpd", on=static, batch_size=4)
    before_Vd = method.static.vectors.detach().clone()
    trainer = Trainer(method, seed=0, budget=1)
    batch: list[Any] = []
    loss = trainer.phases[0].loss
    trainer.phases[0] = replace(trainer.phases[0], loss=lambda index: (batch.append(index), loss(index))[1])
    trainer.train_until(1)
    changed = (method.static.vectors.detach() != before_Vd).any(dim=1).nonzero()[:, 0].numpy()
    assert set(changed) == set(static.tokens.flat(method.rows[batch[0]])[0])


def test_training_goes_on_from_a_checkpoint(static: Prepared, build: Callable[..., Any], tmp_path: Path) -> None:
    whole = build("mse", on=static, output_dim=8)  # a map beside the table: both optimisers
    Trainer(whole, seed=3, budget=8).train_until(8)
    first = Trainer(build("mse", on=static, output_dim=8), seed=3, budget=8)
    first.train_until(4)
    first.save(tmp_path, 1)
    second = build("mse", on=static, output_dim=8)
    trainer = Trainer(second, seed=3, budget=8)
    assert trainer.resume(tmp_path) == 1 and len(trainer.optimizers) == 2
    trainer.train_until(8)
    assert torch.equal(second.static.vectors, whole.static.vectors)
    assert torch.equal(second.map.weight, whole.map.weight)


def test_tables_in_int8_and_int4(
    static: Prepared, build: Callable[..., Any], sentences: list[str], tmp_path: Path
) -> None:
    methods = {table: trained(build("hpd", on=static, table=table)) for table in ("float32", "int8", "int4")}
    for table, method in methods.items():
        method.export(tmp_path / table)
    tensors = {table: load_file(tmp_path / table / "model.safetensors") for table in methods}
    rows, width = methods["int8"].static.vectors.shape
    assert tensors["int8"]["embeddings"].dtype == np.int8 and tensors["int8"]["embeddings"].shape == (rows, width)
    assert tensors["int4"]["packed"].dtype == np.uint8 and tensors["int4"]["packed"].nbytes == rows * width // 2
    assert count_parameters(tmp_path / "float32") == rows * width
    for table, cosine in (("int8", 0.999), ("int4", 0.97)):
        assert count_parameters(tmp_path / table) == rows * width + rows
        vectors_Nd = encode(EncoderSpec(str(tmp_path / table)).load(), sentences[:40])
        np.testing.assert_allclose(vectors_Nd, methods[table].embed(np.arange(40)), atol=1e-6)
        assert tensors[table]["weights"].shape == (rows,)
        assert (vectors_Nd * methods["float32"].embed(np.arange(40))).sum(axis=1).min() > cosine
    assert [table for table in methods if is_packed(tmp_path / table)] == ["int4"]
    exec(unpack_code(str(tmp_path / "int4")))  # as the READMEs of an export and of an index have it
    assert not is_packed(tmp_path / "int4")
    for table in ("int8", "int4"):
        model = SentenceTransformer(str(tmp_path / table))
        np.testing.assert_allclose(model.encode(sentences[:40]), methods[table].embed(np.arange(40)), atol=1e-6)


def test_codes_of_a_table() -> None:
    table_Vd = np.array([[0.0, 0.0], [1.0, -2.54], [-1e-6, 6e-7]], dtype=np.float32)
    codes_Vd, scale_V = coded(table_Vd, 127)
    assert codes_Vd.tolist() == [[0, 0], [50, -127], [-127, 76]]
    np.testing.assert_allclose(codes_Vd * scale_V[:, None], table_Vd, atol=0.011)
    for shape in ((3, 5), (4, 2), (2, 1)):
        codes_Vd = coded(np.random.default_rng(0).normal(size=shape).astype(np.float32), 7)[0]
        assert np.ptp(codes_Vd) > 7 and packed(codes_Vd).nbytes == (codes_Vd.size + 1) // 2
        np.testing.assert_array_equal(unpacked(packed(codes_Vd), len(codes_Vd)), codes_Vd)


def test_sentences_without_tokens_are_zero(static: Prepared, build: Callable[..., Any]) -> None:
    student = build("hpd", on=static).static
    vectors_Bd = student(np.array([5, 6, 5]), np.array([0, 2, 2])).detach().numpy()
    np.testing.assert_allclose(vectors_Bd[0], student.table()[[5, 6]].mean(axis=0), atol=1e-6)
    assert not vectors_Bd[1].any() and vectors_Bd[2].any()


@pytest.fixture(scope="module")
def earlier(static: Prepared, build: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A trained static student, and its exported folder."""
    method, folder = (
        trained(build("hpd", on=static, output_dim=16, lr=0.02), 60),
        tmp_path_factory.mktemp("earlier") / "student",
    )
    method.export(folder)
    return method, folder


@pytest.fixture(scope="module")
def going_on(
    earlier: Any, static: Prepared, sentences: list[str], tmp_path_factory: pytest.TempPathFactory
) -> Prepared:
    """The static student of that folder as the start of another."""
    store, source = ArtifactStore(tmp_path_factory.mktemp("store")), EncoderSpec(str(earlier[1]))
    start = static_start_artifact(source, store)
    assert start == static_start_artifact(source, store)
    tokens = load_tokens(tokens_artifact(CorpusText(sentences, "the small corpus"), source, store, static=start))
    return replace(static, student=f"static@{earlier[1]}", static=load_static_start(start), tokens=tokens)


def test_a_student_that_goes_on_starts_in_the_teachers_space(
    earlier: Any, going_on: Prepared, static: Prepared, build: Callable[..., Any]
) -> None:
    rows = static.train
    for row in rows[:30]:
        assert going_on.tokens[row].tolist() == static.tokens[row].tolist()
    wanted_Nd = static.pca.project(static.vectors.take(rows), 12)
    method = build("hpd", on=going_on, output_dim=12)
    near = {}
    for name, started in (("going on", method), ("fresh", build("hpd", on=static, output_dim=12))):
        with torch.inference_mode():
            start_Nd = started.static(*started.tokens.flat(rows)).numpy()
        near[name] = (unit(start_Nd) * unit(wanted_Nd)).sum(axis=1).mean()
    assert near["going on"] > near["fresh"] + 0.01


@pytest.mark.parametrize("name", sorted(TAKES))
def test_every_method_trains_a_student_that_goes_on(
    name: str, going_on: Prepared, build: Callable[..., Any], sentences: list[str], tmp_path: Path
) -> None:
    method = trained(build(name, on=going_on, **TAKES[name]))
    method.export(tmp_path / "student")
    model = SentenceTransformer(str(tmp_path / "student"))
    np.testing.assert_allclose(encode(model, sentences[:40]), method.embed(np.arange(40)), atol=1e-5)


def test_what_cannot_go_on(earlier: Any, prepared: Prepared) -> None:
    folder, teacher = earlier[1], prepared.teacher
    check_student(f"static@{folder}", teacher)
    for student, message in (
        (f"static@{folder}:corpus", "it keeps its tokens"),
        (f"static@{folder}:+10k", "it keeps its tokens"),
        (f"static@{teacher.name}", "no static student"),
        (str(folder), f"a static student is static@{folder}"),
    ):
        with pytest.raises(InputError, match=re.escape(message)):
            check_student(student, teacher)


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("hpd", {"activation": ["tanh"]}, "activation: tanh"),
        ("mcr2_distil", {"activation": ["identity", "tanh"]}, "activation: tanh"),
        ("ibkd", {"beta1": [0.0, 1.0], "beta2": [0.0], "ft_epochs": [0]}, "beta1"),
        ("ibkd", {"beta1": [0.0], "beta2": [0.5], "ft_epochs": [1]}, "beta2"),
        ("mse", {"output_dim": [64]}, "64 is above the 32"),
    ],
)
def test_settings_that_it_cannot_have(name: str, given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        get_method(name).check_student(given.__getitem__, "static", 32)


def test_mse_of_any_width() -> None:
    get_method("mse").check_student({"output_dim": [8, 32]}.__getitem__, "static", 32)
