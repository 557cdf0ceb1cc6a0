"""The space of a student's queries and its teacher's documents: who has one, and that it is the space of the targets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from distilbench.encoders.shared_space import SharedSpace
from distilbench.evaluation.faiss_codes import unit
from distilbench.methods import get_method, method_names
from distilbench.prepare.prepared import Prepared

Build = Callable[..., Any]
ROWS = np.array([3, 1, 7, 40])


def aligned(method: Any) -> bool:
    return not method.apart(lambda name: [getattr(method.params, name)])


@pytest.mark.parametrize("given", [{}, {"whiten_from": 16}, {"nested": True, "widths": [4]}])
def test_the_documents_of_hpd_are_its_targets(build: Build, given: dict[str, Any]) -> None:
    method = build("hpd", **given).eval()
    assert aligned(method)
    space, vectors_ND = method.shared_space(), method.prepared.vectors.take(ROWS)
    wanted = method.prepared.pca.project(vectors_ND, method.trained_dim)
    if given.get("whiten_from"):
        wanted = method._whitening().linear(method._whitening().linear.weight.new_tensor(wanted)).detach().numpy()
    assert space.documents(vectors_ND) == pytest.approx(wanted, abs=1e-5)
    assert space.queries(method.embed(ROWS)) == pytest.approx(method.embed(ROWS))
    assert space.width == method.params.output_dim == space.documents(vectors_ND).shape[1]


def test_a_projection_with_steps_of_its_own_has_a_head_for_the_documents(build: Build) -> None:
    method = build("hpd", nested=True, widths=[4], head_steps=3)
    student = method.projection.linear
    with torch.no_grad():  # as such steps may: other directions, and another centre
        student.weight.copy_(student.weight.flip(0) * 2)
        student.bias.add_(1)
    space, rows = method.shared_space(), method.rows
    errors = []
    for documents_Nd in (space.documents(method.prepared.vectors.take(rows)), method._targets(rows)):
        errors.append(float(np.square(method.encode(rows) - documents_Nd).mean()))
    assert errors[0] < 0.8 * float(method.encode(rows).var(axis=0).mean()) < errors[1]
    assert space.head == "a head fitted to the student's" and aligned(method)


def test_a_narrower_students_queries_go_through_the_map_that_was_learned_with_it(
    build: Build, narrow: Prepared
) -> None:
    method = build("mse", on=narrow, output_dim=16)
    space, vectors_ND = method.shared_space(), narrow.vectors.take(ROWS)
    mapped = method.embed(ROWS) @ method.map.weight.detach().numpy().T
    assert space.queries(method.embed(ROWS)) == pytest.approx(mapped, abs=1e-5)
    assert np.array_equal(space.documents(vectors_ND), vectors_ND) and space.width == vectors_ND.shape[1]
    own = build("mse", output_dim=32).shared_space()
    assert own.after_student == own.after_teacher == ()


@pytest.mark.parametrize("centre", [True, False])
def test_the_documents_of_distilled_mcr2_are_the_heads_output(build: Build, centre: bool) -> None:
    method = build("mcr2_distil", centre=centre)
    space = method.shared_space()
    documents_Nd = space.documents(method.prepared.vectors.take(ROWS))
    assert documents_Nd == pytest.approx(method.compression.embed(ROWS), abs=1e-5)


def test_ibkd_and_crd_compare_as_their_losses_do(build: Build) -> None:
    ibkd, crd = build("ibkd", output_dim=32, ft_epochs=0), build("crd", output_dim=32, critic_dim=8)
    states_ND, vectors_ND = crd.embed(ROWS), crd.prepared.vectors.take(ROWS)
    critic = crd.shared_space()
    by_student = crd._student(torch.from_numpy(states_ND)).detach().numpy()
    assert unit(critic.queries(states_ND)) == pytest.approx(by_student, abs=1e-5)
    assert unit(critic.documents(vectors_ND)) == pytest.approx(crd._teacher(ROWS).detach().numpy(), abs=1e-5)
    mapped = ibkd.embed(ROWS) @ ibkd.map.weight.detach().numpy().T
    assert ibkd.shared_space().queries(ibkd.embed(ROWS)) == pytest.approx(mapped, abs=1e-5)


def test_who_has_no_space_in_common_says_why(build: Build) -> None:
    assert not aligned(build("hpd", ft_epochs=1.0)) and not aligned(build("ibkd", output_dim=32, ft_epochs=1.0))
    heads = [name for name in method_names() if not get_method(name).trains_encoder]
    assert {get_method(name).apart(lambda _: [0]) for name in heads} == {
        "its queries are embedded by the teacher, as its documents are"
    }
    assert get_method("contrastive").apart(lambda _: [0]) == "nothing draws it to the teacher's vectors"


def test_what_is_saved_is_read_again(build: Build, tmp_path: Path) -> None:
    for name, given in (
        ("hpd", {"head_steps": 1}),
        ("crd", {"output_dim": 32, "critic_dim": 8}),
        ("mse", {"output_dim": 32}),
    ):
        method, folder = build(name, **given), tmp_path / name
        space, vectors_ND = method.shared_space(), method.prepared.vectors.take(ROWS)
        space.save(folder)
        again = SharedSpace.load(folder)
        assert again is not None and (again.width, again.head) == (space.width, space.head)
        assert np.array_equal(again.documents(vectors_ND), space.documents(vectors_ND))
        assert np.array_equal(again.queries(method.embed(ROWS)), space.queries(method.embed(ROWS)))
    assert SharedSpace.load(tmp_path) is None
