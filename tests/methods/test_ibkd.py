"""IBKD: kernels, HSIC and both stages' losses against slow references; the projection; resume across the stages."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from distilbench.data.corpus import Corpus, CorpusBuilder
from distilbench.errors import InputError
from distilbench.methods.ibkd import IBKD, START_SENTENCES, Kernel, gram, hsic
from distilbench.methods.parts.starts import spread
from distilbench.prepare.prepared import Prepared
from distilbench.training.loop import Trainer

KERNELS: tuple[Kernel, ...] = ("rbf", "imq", "linear")
GAMMA = 0.7


def slow_gram(x: np.ndarray, kernel: Kernel, gamma: float) -> np.ndarray:
    """One entry at a time."""
    out = np.empty((len(x), len(x)))
    for i, a in enumerate(x):
        for j, b in enumerate(x):
            r2 = float(((a - b) ** 2).sum())
            out[i, j] = {
                "rbf": math.exp(-gamma * r2),
                "imq": 1 / math.sqrt(1 + gamma * r2),
                "linear": float(a @ b),
            }[kernel]
    return out


def slow_hsic(x: np.ndarray, s: np.ndarray, kernel: Kernel, gamma: float) -> float:
    """tr(Kx H Ks H) / B^2 with the matrix H written out."""
    count = len(x)
    h = np.eye(count) - np.ones((count, count)) / count
    return float(np.trace(slow_gram(x, kernel, gamma) @ h @ slow_gram(s, kernel, gamma) @ h)) / count**2


def slow_nce(query: np.ndarray, candidates: list[np.ndarray], temperature: float) -> float:
    """-mean_i log softmax of cosines / temperature over candidates[i], whose first is the positive."""
    losses = []
    for q, own in zip(query, candidates, strict=True):
        cosines = own @ q / (np.linalg.norm(own, axis=1) * np.linalg.norm(q)) / temperature
        losses.append(math.log(np.exp(cosines - cosines.max()).sum()) + cosines.max() - cosines[0])
    return float(np.mean(losses))


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


@pytest.mark.parametrize("kernel", KERNELS)
def test_gram_and_hsic_equal_the_references(kernel: Kernel) -> None:
    x, s = draw(9, 5), draw(9, 3, seed=1)
    assert gram(torch.tensor(x), kernel, GAMMA).numpy() == pytest.approx(slow_gram(x, kernel, GAMMA), rel=1e-10)
    ours = hsic(torch.tensor(x), torch.tensor(s), kernel, GAMMA).item()
    assert ours == pytest.approx(slow_hsic(x, s, kernel, GAMMA), rel=1e-10)


@pytest.mark.parametrize("kernel", KERNELS)
def test_hsic_gradients_equal_finite_differences(kernel: Kernel) -> None:
    x, s = (torch.tensor(v, requires_grad=True) for v in (draw(6, 3), draw(6, 2, seed=1)))
    assert torch.autograd.gradcheck(lambda a, b: hsic(a, b, kernel, GAMMA), (x, s))


@pytest.mark.parametrize("kernel", KERNELS)
def test_hsic_of_a_constant_is_zero_and_its_gradient_finite(kernel: Kernel) -> None:
    x = torch.tensor(draw(7, 4), requires_grad=True)
    same = torch.ones(7, 2, dtype=torch.float64, requires_grad=True)
    value = hsic(x, same, kernel, GAMMA)
    value.backward()
    assert value.item() == pytest.approx(0, abs=1e-14)
    assert torch.isfinite(x.grad).all() and torch.isfinite(same.grad).all()


def test_linear_hsic_is_the_squared_norm_of_the_covariance() -> None:
    """tr(X X^T H S S^T H) / B^2 = ||X^T H S / B||^2, X^T H S / B being the (biased) cross-covariance."""
    x, s = draw(20, 4), draw(20, 3, seed=1)
    both = np.cov(np.hstack([x, s]), rowvar=False, bias=True)
    own, cross = both[:4, :4], both[:4, 4:]
    assert hsic(torch.tensor(x), torch.tensor(x), "linear", 1.0).item() == pytest.approx((own**2).sum(), rel=1e-10)
    assert hsic(torch.tensor(x), torch.tensor(s), "linear", 1.0).item() == pytest.approx((cross**2).sum(), rel=1e-10)


def test_hsic_of_independent_samples_vanishes_with_their_number() -> None:
    """Its mean is (1 - mx)(1 - ms) / n for kernels with k(x, x) = 1, m the kernel's mean (Gretton et al. 2005); dependent
    samples keep theirs."""
    n = 2000
    x, s = torch.tensor(draw(n, 3)), torch.tensor(draw(n, 3, seed=1))
    independent = hsic(x, s, "rbf", 0.5).item()
    means = [gram(v, "rbf", 0.5).mean().item() for v in (x, s)]
    assert independent == pytest.approx((1 - means[0]) * (1 - means[1]) / n, rel=0.1)
    dependent = hsic(x, x[:, [1, 2, 0]] ** 2 + 0.1 * s, "rbf", 0.5).item()  # uncorrelated, but not independent
    assert dependent > 20 * independent
    assert hsic(x[:200], s[:200], "rbf", 0.5).item() == pytest.approx(10 * independent, rel=0.25)


@pytest.mark.parametrize("kernel", KERNELS)
def test_hsic_knows_no_order(kernel: Kernel) -> None:
    x, s = torch.tensor(draw(12, 4)), torch.tensor(draw(12, 3, seed=1))
    order = torch.randperm(12, generator=torch.Generator().manual_seed(0))
    value = hsic(x, s, kernel, GAMMA).item()
    assert hsic(x[order], s[order], kernel, GAMMA).item() == pytest.approx(value, rel=1e-10)
    assert hsic(s, x, kernel, GAMMA).item() == pytest.approx(value, rel=1e-10)
    assert hsic(x[order], s, kernel, GAMMA).item() != pytest.approx(value, rel=0.01)


def test_autocast_costs_no_precision() -> None:
    x, s = (torch.tensor(v, dtype=torch.float32) for v in (5 * draw(8, 16), draw(8, 16, seed=1)))
    exact = [hsic(x, s, kernel, 0.01).item() for kernel in KERNELS]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert [hsic(x, s, kernel, 0.01).item() for kernel in KERNELS] == pytest.approx(exact, rel=1e-4)


def x_of(encoder_folder: Path, sentences: list[str]) -> np.ndarray:
    """Mean over the tokens of the teacher's embedding layer, which is the student's, by transformers alone."""
    from transformers import AutoModel, AutoTokenizer

    model = AutoModel.from_pretrained(encoder_folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(encoder_folder)
    with torch.no_grad():
        each = [model(**tokenizer(s, return_tensors="pt"), output_hidden_states=True) for s in sentences]
    return np.stack([found.hidden_states[0][0].mean(dim=0).numpy() for found in each]).astype(np.float64)


@pytest.mark.parametrize("kernel", KERNELS)
def test_stage_1_loss_equals_the_reference(
    build: Callable[..., IBKD], encoder_folder: Path, sentences: list[str], kernel: Kernel
) -> None:
    settings = {"kernel": kernel, "gamma": 2.0}
    method = build("ibkd", beta1=30.0, tau=0.2, **settings).eval()
    index = np.array([3, 1, 7, 12, 30])
    rows = method.prepared.train[index]
    s = method.embed(rows).astype(np.float64)
    assert s.shape == (5, 32)  # the projection to 8 comes in stage 2
    x = x_of(encoder_folder, [sentences[r] for r in rows])
    mapped = s @ method.map.weight.detach().double().numpy().T
    t = method.prepared.vectors.take(rows).astype(np.float64)
    nce = slow_nce(mapped, [np.vstack([t[i], np.delete(t, i, axis=0)]) for i in range(5)], 0.2)
    information = 30 * slow_hsic(unit(x), unit(s), kernel, 2.0)
    assert information > 0.01
    assert method.loss(index).item() == pytest.approx(nce + information, rel=1e-4)
    # CKD: the same without the second term, by a path of its own.
    assert build("ibkd", beta1=0.0, tau=0.2, **settings).eval().loss(index).item() == pytest.approx(nce, rel=1e-4)


@pytest.mark.parametrize("hard_negatives", [0, 1, 3])
def test_stage_2_loss_equals_the_reference(
    build: Callable[..., IBKD],
    encoder_folder: Path,
    sentences: list[str],
    hard_negatives: int,
) -> None:
    method = build("ibkd", beta2=2.0, hard_negatives=hard_negatives, ft_tau=0.3).eval()
    _, stage2 = method.phases()
    stage2.begin()
    index = np.array([4, 0, 9])
    examples = method.labelled
    a, p = (method.embed(rows[index]).astype(np.float64) for rows in (examples.anchor_T, examples.positive_T))
    assert a.shape == (3, 8)
    n = [
        method.embed(examples.negative_TK[i]).astype(np.float64) if hard_negatives else np.empty((0, 8)) for i in index
    ]
    nce = slow_nce(a, [np.vstack([p[i], np.delete(p, i, axis=0), n[i]]) for i in range(3)], 0.3)
    x = x_of(encoder_folder, [sentences[r] for r in examples.anchor_T[index]])
    wanted = nce + 2.0 * slow_hsic(unit(x), unit(a), "rbf", 0.5)
    assert stage2.loss(index).item() == pytest.approx(wanted, rel=1e-4)
    without = build("ibkd", beta2=0.0, hard_negatives=hard_negatives, ft_tau=0.3).eval()
    without.phases()[1].begin()
    assert without.phases()[1].loss(index).item() == pytest.approx(nce, rel=1e-4)


def test_the_projection_comes_after_stage_1(build: Callable[..., IBKD], tmp_path: Path) -> None:
    method = build("ibkd")
    trainer = Trainer(method, 0, 10**6)
    stage1, stage2 = trainer.phases
    assert (stage1.name, stage2.name) == ("distil", "fine-tune")
    untrained = method.down.linear.weight.detach().clone()
    trainer.train_until(stage1.steps)
    assert method.embed(np.arange(3)).shape == (3, 32) and torch.equal(method.down.linear.weight, untrained)
    trainer.train_until(trainer.total_steps)
    assert trainer.step == stage1.steps + stage2.steps
    assert method.embed(np.arange(3)).shape == (3, 8) and not torch.equal(method.down.linear.weight, untrained)
    method.export(tmp_path / "student")
    assert len(list((tmp_path / "student").glob("*_Dense"))) == 1


def test_no_projection_at_the_students_own_width(build: Callable[..., IBKD], tmp_path: Path) -> None:
    method = build("ibkd", output_dim=32)
    trainer = Trainer(method, 0, 4)
    trainer.train_until(4)
    assert method.embed(np.arange(3)).shape == (3, 32)
    method.export(tmp_path / "student")
    assert not list((tmp_path / "student").glob("*_Dense"))


def test_without_labelled_epochs_there_is_one_stage(build: Callable[..., IBKD]) -> None:
    assert [p.name for p in build("ibkd", output_dim=32, ft_epochs=0).phases()] == ["distil"]


def test_training_lowers_both_losses(build: Callable[..., IBKD]) -> None:
    method = build("ibkd", epochs=3.0, ft_epochs=6.0)
    stage1, _ = method.phases()
    trainer = Trainer(method, 0, 10**6)
    first = trainer.train_until(5)
    trainer.train_until(stage1.steps - 5)
    assert trainer.train_until(stage1.steps) < first - 0.1
    first = trainer.train_until(stage1.steps + 5)
    trainer.train_until(trainer.total_steps - 5)
    assert trainer.train_until(trainer.total_steps) < first - 0.1


def test_a_student_of_another_width_is_mapped_to_the_teacher(build: Callable[..., IBKD], narrow: Prepared) -> None:
    method = build("ibkd", on=narrow)
    assert method.map.weight.shape == (32, 16)
    Trainer(method, 0, 4).train_until(4)
    assert method.embed(np.arange(3)).shape == (3, 8)


def corpus(sentences: int = 40, triplets: int = 20) -> Corpus:
    builder = CorpusBuilder("test")
    builder.train_on([f"sentence {i}" for i in range(sentences)])
    builder.train_triplets(*([f"{side} {i}" for i in range(triplets)] for side in "apn"))
    return builder.build()


def check(corpus: Corpus, **params: Any) -> None:
    """The corpus check of single values."""
    defaults = {name: f.default for name, f in IBKD.params_type.model_fields.items()}
    given = {**defaults, "output_dim": 32, "batch_size": 8, "ft_batch_size": 8, **params}

    def possible(name: str) -> list[Any]:
        return given[name] if isinstance(given[name], list) else [given[name]]

    IBKD.check_corpus(possible, corpus, 32)
    IBKD.check_student(possible, "auto", 32)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (
            {"output_dim": [8, 32], "ft_epochs": [0.0, 3.0]},
            "output_dim: 8: .*expected output_dim 32.*ft_epochs above 0",
        ),
        ({"output_dim": 64}, "output_dim: 64 is above the 32"),
        ({"batch_size": 512}, "batch_size is 512, but the corpus has only 100 training sentences"),
        ({"ft_batch_size": 64}, "ft_batch_size is 64, but the corpus has only 20 triplets"),
        ({"labelled": "pairs"}, "ft_batch_size is 8, but the corpus has only 0 similar pairs"),
    ],
)
def test_what_the_corpus_cannot_give_is_said(params: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        check(corpus(), **params)


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"output_dim": 8},  # stage 2 trains the projection
        {"ft_epochs": 0.0, "ft_batch_size": 64},  # no stage 2: its batch does not matter
    ],
)
def test_a_sufficient_corpus_passes(params: dict[str, Any]) -> None:
    check(corpus(), **params)


def test_triplets_are_needed_only_for_stage_2() -> None:
    def possible(**params: Any) -> Callable[[str], list[Any]]:
        return lambda name: params.get(name, [False])

    assert IBKD.needs(possible(ft_epochs=[0, 3], labelled=["pairs", "triplets"])).triplets
    assert not IBKD.needs(possible(ft_epochs=[0, 3], labelled=["pairs"])).triplets
    assert not IBKD.needs(possible(ft_epochs=[0], labelled=["triplets"])).triplets


@pytest.mark.parametrize(
    ("params", "told"),
    [
        ({"beta1": 1.0, "beta2": 0.5, "ft_epochs": 3}, "fine-tuned"),
        ({"beta1": 1.0, "beta2": 0.5, "ft_epochs": 0}, ""),
        ({"beta1": 0.0, "beta2": 0.5, "ft_epochs": 0}, "CKD"),
        ({"beta1": 0.0, "beta2": 0.0, "ft_epochs": 3}, "CKD, fine-tuned"),
        ({"beta1": 0.0, "beta2": 0.5, "ft_epochs": 3}, "fine-tuned"),
    ],
)
def test_a_table_tells_ckd_and_fine_tuning(params: dict[str, Any], told: str) -> None:
    assert IBKD.variant(params) == told


def start(method: IBKD) -> None:
    for phase in method.phases():
        phase.begin()
        phase.start()


def test_w_starts_as_the_identity_or_the_regression(build: Callable[..., IBKD], narrow: Prepared) -> None:
    method = build("ibkd", map_start="auto")
    start(method)
    assert torch.equal(method.map.weight, torch.eye(32))
    for map_start in ("regression", "auto"):
        method = build("ibkd", on=narrow, map_start=map_start)
        rows = method.rows[spread(len(method.rows), START_SENTENCES)]
        s = build("ibkd", on=narrow).embed(rows).astype(np.float64)
        method.phases()[0].start()
        t = method.prepared.vectors.take(rows).astype(np.float64)
        wanted = np.linalg.solve(s.T @ s + 1e-3 * np.eye(s.shape[1]), s.T @ t)
        assert method.map.weight.detach().numpy() == pytest.approx(wanted.T, abs=1e-3)


def test_the_projection_starts_as_the_pca_of_what_the_student_gives(build: Callable[..., IBKD]) -> None:
    from sklearn.decomposition import PCA

    method = build("ibkd", projection_start="pca")
    rows = method.rows[spread(len(method.rows), START_SENTENCES)]
    states = method.embed(rows).astype(np.float64)
    assert states.shape[1] == 32
    start(method)
    wanted = PCA(8, svd_solver="full").fit_transform(states)
    ours = method.embed(rows)
    assert ours == pytest.approx(wanted * np.sign((ours * wanted).sum(axis=0)), abs=1e-3)
