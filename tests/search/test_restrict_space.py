"""A search space loses the choices that the data cannot serve, and says so; what nothing can serve stays an error."""

from __future__ import annotations

import io
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from samples import demonstration as read_demonstration

from distilbench.choices import BUDGETS
from distilbench.commands.corpus import load_corpus
from distilbench.commands.sweep_plan import plan_method_runs, space_and_corpus
from distilbench.data.corpus import Corpus
from distilbench.data.requirements import Requirements
from distilbench.errors import InputError
from distilbench.methods import get_method, method_names
from distilbench.methods.mcr2 import MCR2Params
from distilbench.methods.method import Possible
from distilbench.search.restrict_space import restrict_setting, restrict_space, within_width
from distilbench.search.space import SearchSpace
from distilbench.search.space_files import load_space, shipped_folder
from distilbench.search.starts import starts_for
from distilbench.settings.sweep import SweepSettings

SPACE = """
method: mcr2
budget: {trials: 6, steps: 90}
parameters:
  output_dim: {choices: [4, 8, 64]}
  clusters: {choices: [4, 16, 64]}
  pairs: {choices: [duplicates, noise]}
  noise: {low: 0.01, high: 0.1, when: {pairs: noise}}
  eps2: {low: 0.01, high: 0.1, when: {pairs: duplicates}}
  lr: {low: 0.0001, high: 0.01, log: true}
fixed: {batch_size: 16, lambda: 1}
enqueue:
  - {pairs: duplicates, clusters: 64, lr: 0.002}
  - {pairs: duplicates}
  - {output_dim: 64, lr: 0.003}
  - {pairs: duplicates, clusters: 64, lr: 0.001}
"""


def load(tmp_path: Path, text: str = SPACE) -> SearchSpace:
    (tmp_path / "space.yaml").write_text(text)
    return load_space(tmp_path / "space.yaml", "mcr2", MCR2Params, native=32)


def limited(**most: Any) -> Any:
    """A check that allows numbers up to a limit, or some words alone."""

    def check(possible: Possible) -> None:
        for name, allowed in most.items():
            for value in possible(name):
                if value > allowed if isinstance(allowed, int) else value not in allowed:
                    raise InputError(f"{name} is {value}")

    return check


def test_choices_that_are_refused_are_left_out_with_their_reasons(tmp_path: Path) -> None:
    space = restrict_space(load(tmp_path), limited(clusters=16, output_dim=8))
    assert space.parameters["clusters"].choices == (4, 16) and space.dimensions == [4, 8]
    assert space.notes == ("without output_dim 64: output_dim is 64", "without clusters 64: clusters is 64")
    assert space.requested == load(tmp_path).parameters


def test_what_is_left_alone_is_fixed_and_conditions_on_the_rest_are_settled(tmp_path: Path) -> None:
    space = restrict_space(load(tmp_path), limited(pairs=("noise",)))
    assert space.fixed["pairs"] == "noise" and "pairs" not in space.parameters
    assert space.parameters["noise"].active(space.fixed)
    assert space.fixed["eps2"] == 0.01 and "eps2" not in space.parameters  # its condition can hold no longer
    assert not space.fixed.keys() & space.parameters.keys()


def test_settings_to_try_first_are_adapted_or_dropped(tmp_path: Path) -> None:
    space = restrict_space(load(tmp_path), limited(pairs=("noise",), clusters=16, output_dim=8))
    assert space.enqueue == ({"clusters": 16, "lr": 0.002}, {"clusters": 16, "lr": 0.001})
    starts = starts_for(space, 4)
    assert starts == [
        *({"output_dim": d, "clusters": 16, "lr": 0.002} for d in (4, 8)),
        *({"output_dim": d, "clusters": 16, "lr": 0.001} for d in (4, 8)),
    ]
    assert (
        restrict_setting({"output_dim": 4, "pairs": "noise"}, space.parameters) == {}
    )  # nothing of it is searched any more
    assert restrict_setting({"output_dim": 64, "lr": 0.001}, space.parameters) == {}


def test_a_width_that_no_dimension_fits_is_taken_itself(tmp_path: Path) -> None:
    space = within_width(load(tmp_path), 3)
    assert space.dimensions == [3] and space.notes == (
        "output_dim 3, since teacher or student has no more, for 4, 8, 64",
    )
    assert within_width(load(tmp_path), 4).dimensions == [4, 8, 64]  # the wide ones are the check's


# Every shipped space, with the checks of a sweep


@cache
def demonstration() -> Corpus:
    return read_demonstration(2000, Requirements(triplets=True, pair_tasks=("SNLI",)))


@pytest.mark.parametrize("native", [384, 48])
@pytest.mark.parametrize("method", method_names())
@pytest.mark.parametrize("budget", BUDGETS)
def test_every_shipped_space_fits_the_demonstration(budget: str, method: str, native: int) -> None:
    kind = get_method(method)
    space = load_space(shipped_folder() / budget / f"{method}.yaml", method, kind.params_type, native)
    if method == "dse":
        space = space.model_copy(update={"fixed": {**space.fixed, "task": "SNLI"}})

    def check(possible: Possible) -> None:
        kind.check_student(possible, "auto", native)
        kind.check_corpus(possible, demonstration(), native)

    space = restrict_space(within_width(space, native), check)
    check(space.possible)
    assert max(space.dimensions) <= native
    for setting in starts_for(space, 3):
        kind.params_type.model_validate({**space.fixed, **space.defaults, **lowest(space), **setting})
    assert space.enqueue or space.is_grid  # something that is known to be good
    if native == 384 and budget != "cluster":
        assert not [note for note in space.notes if "output_dim" in note]


def lowest(space: SearchSpace) -> dict[str, Any]:
    return {name: space.possible(name)[0] for name in space.parameters}


# A run's own data


def run_settings(data: Path, encoder: Path, store: Path, **changes: Any) -> SweepSettings:
    given: dict[str, Any] = {
        "method": ("mcr2",),
        "data": str(data) if data else None,
        "teacher": str(encoder),
        "store": store,
    }
    return SweepSettings(**{**given, "student": "layers:0,2", **changes})


MCR2 = """
method: mcr2
budget: {trials: 2, steps: 4}
parameters:
  output_dim: {choices: [4]}
  pairs: {choices: [duplicates, noise]}
  lr: {low: 0.0001, high: 0.01}
fixed: {batch_size: 8, clusters: 4, lambda: 1}
"""
HPD = """
method: hpd
budget: {trials: 2, steps: 4}
parameters:
  output_dim: {choices: [4]}
  lr: {low: 0.0001, high: 0.01}
  augmentation: {choices: [false, true]}
fixed: {batch_size: 8}
"""


def test_mcr2_without_similar_pairs_takes_noisy_copies(tmp_path: Path, data_folder: Path, encoder_folder: Path) -> None:
    import shutil

    data = tmp_path / "data"
    shutil.copytree(data_folder, data)
    for own in ("quora", "cqadupstack"):
        shutil.rmtree(data / own, ignore_errors=True)
    (data / "unlabeled").mkdir(exist_ok=True)
    (data / "unlabeled" / "own.tsv").write_text("text\n" + "".join(f"sentence number {i}\n" for i in range(40)))
    (tmp_path / "space.yaml").write_text(MCR2)
    (tmp_path / "first.yaml").write_text("- {pairs: duplicates, lr: 0.001}\n- {pairs: noise}\n")
    console = Console(record=True, width=400, file=io.StringIO())
    given = {"space": tmp_path / "space.yaml", "warm_start": str(tmp_path / "first.yaml")}
    (member,), _ = plan_method_runs(run_settings(data, encoder_folder, tmp_path, **given), console)
    assert member.space.fixed["pairs"] == "noise" and member.enqueued == [{"lr": 0.001}]
    [note] = member.notes
    assert note.startswith("Search space of mcr2: without pairs duplicates: ") and "0 similar pairs" in note
    assert note in console.export_text()
    (tmp_path / "space.yaml").write_text(MCR2.replace("[duplicates, noise]", "[duplicates]"))
    with pytest.raises(InputError, match=r"space.yaml: batch_size is 8, but the corpus has only 0 similar pairs"):
        plan_method_runs(run_settings(data, encoder_folder, tmp_path, space=tmp_path / "space.yaml"), console)


@pytest.mark.parametrize(("method", "more"), [("mse", ""), ("crd", ", critic_dim: 8")])
def test_bytes_are_an_objective_where_they_are_those_of_the_documents(
    tmp_path: Path, data_folder: Path, encoder_folder: Path, narrow_encoder_folder: Path, method: str, more: str
) -> None:
    space = tmp_path / "space.yaml"
    student = str(narrow_encoder_folder if method == "mse" else "layers:0,2")
    given: dict[str, Any] = {"method": (method,), "space": space, "select": "retrieval,documents=teacher"}
    given |= {"student": student, "objectives": ("quality", "bytes")}
    text = f"method: {method}\nbudget: {{trials: 2, steps: 4}}\nparameters:\n  lr: {{choices: [0.1, 0.01]}}\n"
    space.write_text(f"{text}fixed: {{batch_size: 8, output_dim: native{more}}}\n")
    with pytest.raises(
        InputError, match=r"bytes: with --select .* stores documents of (32|8) dimensions where output_dim"
    ):
        plan_method_runs(run_settings(data_folder, encoder_folder, tmp_path, **given), Console(quiet=True))
    space.write_text(f"{text}fixed: {{batch_size: 8, output_dim: native{more.replace('8', '32')}}}\n")
    wide = run_settings(data_folder, encoder_folder, tmp_path, **{**given, "student": "layers:0,2"})
    assert len(plan_method_runs(wide, Console(quiet=True))[0]) == 1


@pytest.mark.parametrize("augment", [True, False])
def test_augmentation_is_searched_where_there_are_copies(
    tmp_path: Path, data_folder: Path, encoder_folder: Path, augment: bool
) -> None:
    (tmp_path / "space.yaml").write_text(HPD)
    given: dict[str, Any] = {"method": ("hpd",), "space": tmp_path / "space.yaml"}
    if augment:
        given["augment"] = "synonym"
    asked = run_settings(data_folder, encoder_folder, tmp_path, **given)
    space, _ = space_and_corpus(asked, "hpd", lambda needs: load_corpus(asked, needs, Console(quiet=True)))
    if augment:
        assert space.parameters["augmentation"].choices == (False, True) and not space.notes
    else:
        assert space.fixed["augmentation"] is False
        assert space.notes == ("without augmentation true: --augment is not given",)
