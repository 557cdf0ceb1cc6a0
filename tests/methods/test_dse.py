"""DSE: pooling, head and loss against slow references, what `frozen` trains, and that an export scores as the method."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from distilbench.data.corpus import CorpusBuilder, PairSplit, PairTask
from distilbench.encoders.encoder import EncoderSpec
from distilbench.encoders.pair_head import PairHead, label_loss, load_pair_scorer, unit_target
from distilbench.errors import InputError
from distilbench.methods.dse import DSE, student_layers
from distilbench.prepare.prepared import Prepared, load_prepared
from distilbench.training.loop import Trainer
from distilbench.trials.rung_training import build_method

KINDS = ["regression", "binary", "three-class"]
CLASSES = {"regression": (), "binary": ("no", "yes"), "three-class": ("a", "b", "c")}
TRAIN, DEV = 48, 20


def make_task(kind: str, rows: int) -> PairTask:
    rng = np.random.default_rng(7)

    def split(count: int) -> PairSplit:
        target = rng.uniform(1, 5, count) if kind == "regression" else rng.integers(0, len(CLASSES[kind]), count)
        return PairSplit(rng.integers(0, rows, count), rng.integers(0, rows, count), target.astype(np.float64))

    low, high = (1.0, 5.0) if kind == "regression" else (0.0, 1.0)
    return PairTask("T", kind, CLASSES[kind], low, high, {"train": split(TRAIN), "dev": split(DEV)})  # type: ignore[arg-type]


def sentences(prepared_folder: Path) -> list[str]:
    return (prepared_folder / "sentences.txt").read_text().split("\n")


@pytest.fixture
def inputs(prepared_folder: Path) -> dict[str, Prepared]:
    """Prepared inputs with a task of each kind, and made-up logits."""
    plain, rng = load_prepared(prepared_folder), np.random.default_rng(3)
    found = {}
    for kind in KINDS:
        logits = rng.normal(size=(TRAIN, 3 if kind == "three-class" else 1)).astype(np.float32)
        task = make_task(kind, len(sentences(prepared_folder)))
        found[kind] = replace(plain, pair_task=task, logits_PC=logits)
    return found


def build(prepared: Prepared, **params: Any) -> DSE:
    small = {"output_dim": 64, "task": "T", "pooled_layers": 2, "hidden": 16, "lr": 0.003, "batch_size": 8, "epochs": 2}
    method = build_method("dse", {**small, **params}, prepared, 0, "cpu")
    assert isinstance(method, DSE)
    return method


def test_pooling_is_the_mean_of_each_layer_without_cls_and_padding(
    inputs: dict[str, Prepared], prepared_folder: Path
) -> None:
    method = build(inputs["binary"])
    rows = np.array([5, 0, 17, 30, 5])
    encoder, tokens = method.student[0].model.eval(), method.tokens
    wanted = []
    for row in rows:  # one at a time, so there is no padding to leave out
        ids = torch.from_numpy(np.array(tokens[int(row)], dtype=np.int64))[None]
        with torch.no_grad():
            layers = encoder(input_ids=ids, output_hidden_states=True).hidden_states[-2:]
        wanted.append(np.concatenate([layer[0, 1:].double().numpy().mean(axis=0) for layer in layers]))
    assert method.embed(rows) == pytest.approx(np.stack(wanted), abs=1e-5)
    assert len({len(tokens[int(r)]) for r in rows}) > 1  # so that some rows were padded
    # SEP is kept: it is the last of the tokens taken.
    assert tokens[5][-1] == method.student.tokenizer.sep_token_id


def reference_head(head: PairHead, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    p = {name: tensor.detach().double().numpy() for name, tensor in head.named_parameters()}
    if head.kind == "dot":
        dot = np.array([[sum(x * y for x, y in zip(a, b, strict=True)) / len(a)] for a, b in zip(u, v, strict=True)])
        return dot @ p["outer.weight"].T + p["outer.bias"]
    joined = np.concatenate([u, v, u * v, np.abs(u - v)], axis=1)
    return np.maximum(joined @ p["inner.weight"].T + p["inner.bias"], 0) @ p["outer.weight"].T + p["outer.bias"]


@pytest.mark.parametrize("head", ["concat", "dot"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_loss_equals_a_double_precision_reference(
    inputs: dict[str, Prepared], kind: str, head: str, alpha: float
) -> None:
    method = build(inputs[kind], alpha=alpha, head=head, output_dim=8).eval()
    task, logits, index = method.task, method.prepared.logits_PC, np.array([3, 40, 11, 7])
    split = task.splits["train"]
    u, v = (method.embed(side[index]).astype(np.float64) for side in (split.left_P, split.right_P))
    s = reference_head(method.head, u, v)
    assert logits is not None
    distil = ((s - logits[index]) ** 2).sum(axis=1).mean()
    gold = split.target_P[index]
    if kind == "regression":
        label = ((s[:, 0] - (gold - 1) / 4) ** 2).mean()
    else:
        full = np.hstack([np.zeros_like(s), s]) if kind == "binary" else s
        logs = full - np.log(np.exp(full).sum(axis=1, keepdims=True))
        label = -np.mean([logs[i, int(g)] for i, g in enumerate(gold)])
    assert method.loss(index).item() == pytest.approx(alpha * distil + (1 - alpha) * label, rel=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_alpha_0_needs_no_logits(inputs: dict[str, Prepared], kind: str) -> None:
    prepared = replace(inputs[kind], logits_PC=None)
    assert build(prepared, alpha=0).loss(np.arange(4)).isfinite()
    with pytest.raises(ValueError, match="logits"):
        build(prepared, alpha=0.5)
    values = {"task": ["T"], "alpha": [0.0, 0.5]}
    assert DSE.needs(values.__getitem__).logits and not DSE.needs((values | {"alpha": [0.0]}).__getitem__).logits


@pytest.mark.parametrize("kind", ["concat", "dot"])
def test_gradients_of_head_and_losses_equal_finite_differences(kind: str) -> None:
    torch.manual_seed(0)
    head = PairHead(kind, 5, 7, 3).double()  # type: ignore[arg-type]
    u, v = (torch.randn(4, 5, dtype=torch.float64, requires_grad=True) for _ in range(2))
    assert torch.autograd.gradcheck(lambda a, b: head(a, b), (u, v))
    for task, columns in (("regression", 1), ("binary", 1), ("three-class", 3)):
        s = torch.randn(4, columns, dtype=torch.float64, requires_grad=True)
        target = torch.tensor([0.0, 1.0, 1.0, 0.0], dtype=torch.float64)
        assert torch.autograd.gradcheck(lambda x, t=target, k=task: label_loss(x, t, k), (s,))


def test_loss_gradient_of_an_encoder_weight_equals_finite_differences(inputs: dict[str, Prepared]) -> None:
    method = build(inputs["three-class"], output_dim=8).eval()
    index, weight = np.array([0, 2, 5]), method.student[0].model.encoder.layer[0].output.dense.weight
    method.loss(index).backward()
    analytic, step = weight.grad[0, 0].item(), 1e-2
    with torch.no_grad():
        values = []
        for sign in (1, -1):
            weight[0, 0] += sign * step
            values.append(method.loss(index).item())
            weight[0, 0] -= sign * step
    assert analytic == pytest.approx((values[0] - values[1]) / (2 * step), rel=0.05, abs=1e-3)


@pytest.mark.parametrize("frozen", [False, True])
def test_frozen_trains_only_head_and_projection(inputs: dict[str, Prepared], frozen: bool) -> None:
    method = build(inputs["binary"], frozen=frozen, output_dim=8)
    before = {name: p.detach().clone() for name, p in method.named_parameters()}
    vectors = method.embed(np.arange(4))
    Trainer(method, 0, 5).train_until(5)
    changed = {name for name, p in method.named_parameters() if not torch.equal(p, before[name])}
    assert {"head.inner.weight", "head.outer.weight", "projection.linear.weight"} <= changed
    assert any(name.startswith("student.0.") for name in changed) is not frozen
    # The pooling's selections and identities are never trained.
    assert not any(name.startswith("student.") and not name.startswith("student.0.") for name in changed)
    assert not np.array_equal(method.embed(np.arange(4)), vectors)


def test_a_frozen_student_is_run_once_for_each_sentence_without_dropout(
    inputs: dict[str, Prepared], monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = inputs["regression"]
    method, unfrozen = build(prepared, frozen=True), build(prepared)
    method.train()
    rows = np.array([4, 9, 4, 1])
    assert method.pooled(rows).numpy() == pytest.approx(unfrozen.eval().pooled(rows).detach().numpy(), abs=1e-5)
    monkeypatch.setattr(method, "over_parts", lambda *_: pytest.fail("the student was run again"))
    assert method.pooled(rows[:2]).shape == (2, 64)
    with pytest.raises(pytest.fail.Exception):
        method.pooled(np.array([20]))


def test_training_lowers_the_loss(inputs: dict[str, Prepared]) -> None:
    method = build(inputs["regression"], epochs=20, alpha=1.0).eval()
    before = method.loss(np.arange(TRAIN)).item()
    Trainer(method, 0, 60).train_until(60)
    assert method.loss(np.arange(TRAIN)).item() < 0.7 * before


@pytest.mark.parametrize(
    ("kind", "metrics"),
    [("regression", ["pearson", "spearman"]), ("binary", ["accuracy", "f1"]), ("three-class", ["accuracy"])],
)
def test_task_scores_are_those_of_the_dev_pairs(inputs: dict[str, Prepared], kind: str, metrics: list[str]) -> None:
    method = build(inputs[kind])
    scores = method.task_scores("dev")
    assert [(s.task, s.set, s.split, s.metric, s.n) for s in scores] == [
        ("pairs", "T", "dev", metric, DEV) for metric in metrics
    ]
    assert method.task_scores("test") == []  # this task has none


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("head", "d"), [("concat", 64), ("concat", 8), ("dot", 8)])
def test_an_export_embeds_and_scores_as_the_method(
    inputs: dict[str, Prepared], prepared_folder: Path, tmp_path: Path, kind: str, head: str, d: int
) -> None:
    from sentence_transformers import SentenceTransformer

    method = build(inputs[kind], output_dim=d, head=head)
    Trainer(method, 0, 4).train_until(4)
    text, rows = sentences(prepared_folder), np.arange(12)
    vectors, outputs = method.embed(rows), method.pair_outputs(rows[:6], rows[6:])
    method.export(tmp_path / "student")
    model = SentenceTransformer(str(tmp_path / "student"), device="cpu")
    assert model.get_embedding_dimension() == d
    assert model.encode([text[r] for r in rows]) == pytest.approx(vectors, abs=1e-5)
    assert model.encode_query(text[3]) == pytest.approx(vectors[3], abs=1e-5)
    assert EncoderSpec(str(tmp_path / "student")).load().encode(text[3]) == pytest.approx(vectors[3], abs=1e-5)

    scorer = load_pair_scorer(tmp_path / "student")
    left, right = [text[r] for r in rows[:6]], [text[r] for r in rows[6:]]
    assert scorer.outputs(left, right) == pytest.approx(outputs, abs=1e-4)


@pytest.mark.slow
def test_an_export_is_loaded_without_this_package(
    inputs: dict[str, Prepared], prepared_folder: Path, tmp_path: Path
) -> None:
    method = build(inputs["binary"])
    vector = method.embed(np.array([3]))[0]
    method.export(tmp_path / "student")
    code = (
        "import sys; sys.modules['distilbench'] = None\n"
        "from sentence_transformers import SentenceTransformer\n"
        f"print(SentenceTransformer({str(tmp_path / 'student')!r}, device='cpu')"
        f".encode({sentences(prepared_folder)[3]!r}).tolist())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert json.loads(done.stdout.splitlines()[-1]) == pytest.approx(vector.tolist(), abs=1e-5)


def test_bad_students_to_score_with_name_the_folder(
    inputs: dict[str, Prepared], encoder_folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=r"tiny'.*no pair_head.json in it; expected a student that dse exported"):
        load_pair_scorer(encoder_folder)
    build(inputs["binary"]).export(tmp_path / "student")
    path = tmp_path / "student" / "pair_head.safetensors"
    save_file({"inner.weight": load_file(path)["inner.weight"]}, path)
    with pytest.raises(InputError, match=r"student'.*pair head cannot be read: .*outer.weight"):
        load_pair_scorer(tmp_path / "student")
    (tmp_path / "student" / "pair_head.json").write_text("[]")
    with pytest.raises(InputError, match=r"pair head cannot be read"):
        load_pair_scorer(tmp_path / "student")


def test_more_layers_or_dimensions_than_the_student_has_are_bad_input(inputs: dict[str, Prepared]) -> None:
    with pytest.raises(InputError, match=r"pooled_layers is 3, but the student has 2 layers"):
        build(inputs["binary"], pooled_layers=3)
    with pytest.raises(InputError, match=r"output_dim is 65; expected at most 64"):
        build(inputs["binary"], output_dim=65)


@pytest.mark.parametrize(("student", "layers"), [("half", 2), ("layers:0,2,3", 3), ("itself", 4)])
def test_native_is_the_width_of_four_layers_or_of_all(encoder_folder: Path, student: str, layers: int) -> None:
    teacher = EncoderSpec(str(encoder_folder))
    name = str(encoder_folder) if student == "itself" else student
    assert student_layers(name, teacher) == layers
    assert DSE.native_dim(teacher, name) == 32 * layers


def check(values: dict[str, list[Any]], splits: tuple[str, ...] = ("train", "dev")) -> None:
    builder = CorpusBuilder("c")
    builder.train_on(["a", "b"])
    task = make_task("binary", 2)
    builder.pair_tasks.append(replace(task, splits={name: task.splits[name] for name in splits}))
    possible = {"output_dim": [8], "task": ["T"], "batch_size": [8], "alpha": [0.5], **values}
    DSE.check_corpus(possible.__getitem__, builder.build(), 64)


def test_a_corpus_that_is_not_enough_is_bad_input() -> None:
    check({})
    assert DSE.needs({"task": ["T"], "alpha": [0.5]}.__getitem__).pair_tasks == ("T",)
    with pytest.raises(InputError, match=r"task: MRPC: the corpus has no such pair task; expected one of T"):
        check({"task": ["MRPC"]})
    with pytest.raises(InputError, match=r"task: T, U: .*expected one task"):
        check({"task": ["T", "U"]})
    with pytest.raises(InputError, match=r"task: T: it has no dev split"):
        check({}, splits=("train",))
    with pytest.raises(InputError, match=r"batch_size is 64, but the corpus has only 48 training pairs"):
        check({"batch_size": [8, 64]})
    with pytest.raises(InputError, match=r"output_dim: 65"):
        check({"output_dim": [65]})


def test_scores_are_scaled_to_the_unit_interval() -> None:
    task = make_task("regression", 4)
    assert unit_target(task, np.array([1.0, 3.0, 5.0])).tolist() == [0.0, 0.5, 1.0]
    assert unit_target(make_task("three-class", 4), np.array([2.0, 0.0])).tolist() == [2.0, 0.0]


def test_variants_tell_task_alpha_head_and_frozen() -> None:
    assert DSE.variant({"task": "MRPC", "alpha": 0.5}) == "MRPC, alpha 0.5"
    assert DSE.variant({"task": "T", "alpha": 1.0, "head": "dot", "frozen": True}) == "T, alpha 1, dot, frozen"
