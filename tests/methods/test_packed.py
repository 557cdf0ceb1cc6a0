"""A batch read without padding: the same states, gradients and trainings as with it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling
from transformers import AutoConfig, AutoModel

from distilbench.encoders.encoding import padded
from distilbench.methods.method import Method
from distilbench.methods.parts import encoder_method
from distilbench.methods.parts.packed import can_pack, filled_parts, packed, packed_means
from distilbench.training.loop import Trainer

Build = Callable[..., Any]

SMALL = {
    "vocab_size": 50,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 40,
    "pad_token_id": 1,
}
DISTILBERT = {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 24}
KNOWN = ["bert", "distilbert", "electra", "roberta", "xlm-roberta", "camembert"]


class Stub(torch.nn.Module):
    """What a `Transformer` of sentence-transformers holds, without a tokenizer."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, part: dict[str, torch.Tensor], **_: Any) -> dict[str, torch.Tensor]:
        return {**part, "token_embeddings": self.model(**part).last_hidden_state}


def student_of(kind: str, mode: str = "mean") -> SentenceTransformer:
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, **SMALL, **(DISTILBERT if kind == "distilbert" else {}))
    model = AutoModel.from_config(config)
    with torch.no_grad():  # so large that attention to a wrong token, or a wrong position, is seen
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
    return SentenceTransformer(modules=[Stub(model), Pooling(16, mode)], device="cpu").eval()


@pytest.fixture
def ids() -> list[np.ndarray]:
    """Sentences of lengths that do not fall, some of them equal."""
    rng = np.random.default_rng(0)
    return [rng.integers(2, 50, length).astype(np.int32) for length in (2, 3, 3, 3, 7, 9, 9, 31)]


@pytest.mark.parametrize("kind", KNOWN)
def test_states_and_gradients_are_those_of_a_padded_batch(kind: str, ids: list[np.ndarray]) -> None:
    student = student_of(kind)
    assert can_pack(student)
    target = torch.randn(len(ids), 16, generator=torch.Generator().manual_seed(1))

    def gradients(means: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        student.zero_grad()
        (means - target).square().mean().backward()
        return means.detach(), {n: p.grad.clone() for n, p in student.named_parameters() if p.grad is not None}

    plain, plain_gradients = gradients(student(padded(ids, 1, "cpu"))["sentence_embedding"])
    means, its_gradients = gradients(packed_means(student, packed(ids)))
    torch.testing.assert_close(means, plain, atol=1e-5, rtol=0)
    assert its_gradients.keys() == plain_gradients.keys() and len(plain_gradients) > 30
    for name, gradient in plain_gradients.items():
        torch.testing.assert_close(its_gradients[name], gradient, atol=1e-5, rtol=1e-4, msg=name)
    assert student[0].model.config._attn_implementation == "sdpa"


def test_what_is_not_packed() -> None:
    assert can_pack(student_of("bert"))
    assert not can_pack(student_of("bert").train())  # dropout would draw other numbers
    assert not can_pack(student_of("bert", "cls"))
    assert not can_pack(student_of("mpnet"))  # its attention is its own
    more = SentenceTransformer(modules=[*student_of("bert"), torch.nn.Identity()], device="cpu").eval()
    assert not can_pack(more)


def test_parts_hold_the_budget() -> None:
    lengths = np.array([5, 1, 9, 2, 2, 30])
    assert [part.tolist() for part in filled_parts(lengths, 10)] == [[1, 3, 4, 0], [2], [5]]
    assert [part.tolist() for part in filled_parts(lengths, 1)] == [[1], [3], [4], [0], [2], [5]]
    assert len(filled_parts(lengths, 49)) == 1
    assert filled_parts(lengths[:0], 49) == []


def test_a_training_without_padding_is_the_one_with_it(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    def trained() -> tuple[list[float], Method]:
        trainer = Trainer(build("hpd", dropout=False, freeze_embeddings=True), 0, 8)
        return [trainer.train_until(step) for step in range(1, 9)], trainer.method

    passes: list[int] = []
    real = encoder_method.packed_means

    def counted(student: SentenceTransformer, part: dict[str, torch.Tensor]) -> torch.Tensor:
        passes.append(part["input_ids"].numel())
        return real(student, part)

    monkeypatch.setattr(encoder_method, "packed_means", counted)
    losses, _ = trained()
    assert len(passes) == 8
    monkeypatch.setattr(encoder_method, "can_pack", lambda student: False)
    plain, _ = trained()
    assert len(passes) == 8
    assert losses == pytest.approx(plain, rel=1e-5)
    assert losses[-1] < losses[0]


def test_a_resumed_training_without_padding_is_bit_for_bit_the_uninterrupted_one(build: Build, tmp_path: Path) -> None:
    def start() -> Trainer:
        return Trainer(build("hpd", dropout=False, freeze_embeddings=True), 3, 8)

    whole, first, second = start(), start(), start()
    whole.train_until(8)
    first.train_until(3)
    first.save(tmp_path, rung=1)
    assert second.resume(tmp_path) == 1
    second.train_until(8)
    rows = whole.method.prepared.train[:20]
    assert np.array_equal(whole.method.embed(rows), second.method.embed(rows))


def test_parts_whose_states_are_not_kept(build: Build) -> None:
    def gradients(halves: int) -> dict[str, torch.Tensor]:
        method = build("hpd", dropout=False)
        for _ in range(halves):
            assert method.halve_micro_batches()
        method.train()
        method.loss(np.arange(16)).backward()
        return {n: p.grad for n, p in method.named_parameters() if p.grad is not None}

    whole, quarters = gradients(0), gradients(2)
    assert whole.keys() == quarters.keys()
    for name, gradient in whole.items():
        torch.testing.assert_close(quarters[name], gradient, atol=1e-5, rtol=1e-3, msg=name)
