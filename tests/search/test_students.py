"""The student as a parameter of the search: its space, what is suggested, who competes, and a sweep of several students."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from run_command import Command, make_sweep
from simulated import Simulation, in_memory

from distilbench.codes import CompetitionKey, competition_key
from distilbench.errors import InputError
from distilbench.methods import get_method
from distilbench.search.restrict_space import space_for_student
from distilbench.search.space import SearchSpace
from distilbench.search.space_files import load_space
from distilbench.search.starts import starts_for
from distilbench.search.study import trial_group, trial_params

SPACE: dict[str, Any] = {
    "method": "hpd",
    "budget": {
        "trials": 6,
        "steps": 6,
        "student_steps": {"static": 12},
        "rungs": 2,
        "eta": 2,
        "confirm": {"seeds": 1},
    },
    "parameters": {
        "student": {"choices": ["static", "auto:1", "teacher"]},
        "output_dim": {"choices": [4, 8]},
        "lr": {"low": 1e-4, "high": 1e-3, "log": True, "students": {"static": {"low": 0.01, "high": 0.1, "log": True}}},
        "sif": {"choices": [0.0, 0.01], "when": {"student": "static"}},
    },
    "fixed": {"batch_size": 16, "epochs": 1, "start_sentences": 64},
    "enqueue": [{"lr": 0.02, "sif": 0.01}, {"lr": 0.0005}],
}


def changed(**parameters: Any) -> dict[str, Any]:
    kept = {name: r for name, r in {**SPACE["parameters"], **parameters}.items() if r is not None}
    return {**SPACE, "parameters": kept}


def load(folder: Path, content: dict[str, Any] = SPACE) -> SearchSpace:
    path = folder / "space.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return load_space(path, content["method"], get_method(content["method"]).params_type, 32)


# The space


def test_what_a_space_says_of_a_student_holds_with_fewer_tokens(tmp_path: Path) -> None:
    own = {"low": 0.02, "high": 0.05}
    lr = {**SPACE["parameters"]["lr"], "students": {**SPACE["parameters"]["lr"]["students"], "auto:1:corpus": own}}
    content = changed(student={"choices": ["static", "static:corpus", "auto:1", "auto:1:corpus"]}, lr=lr)
    space = load(
        tmp_path, {**content, "enqueue": [{"student": "static", "lr": 0.02}, {"student": "auto:1", "lr": 3e-4}]}
    )
    whole, few = space_for_student(space, "static"), space_for_student(space, "static:corpus")
    assert (few.parameters, few.budget, few.enqueue) == (whole.parameters, whole.budget, whole.enqueue)
    assert space_for_student(space, "auto:1").parameters["lr"].low == 1e-4
    assert space_for_student(space, "auto:1:corpus").parameters["lr"].low == 0.02 and "sif" in whole.parameters
    starts = starts_for(space, 20)
    chosen = [(s["student"], s["output_dim"]) for s in starts if "lr" in s]
    assert chosen == [(s, d) for s in ("static", "static:corpus", "auto:1") for d in (4, 8)], (
        "3e-4 is not in its own range"
    )
    params = {"student": "static:corpus", "output_dim": 8}
    assert competition_key(params) == CompetitionKey("static:corpus", 32) and space.budget.steps_of(params) == 12


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (changed(student={"low": 1, "high": 2}), "student: .*expected choices"),
        (changed(student={"choices": ["auto:1"]}), "'static'; expected one of the students"),
        (
            changed(lr={"low": 0.1, "high": 1.0, "students": {"auto:2": {"low": 0.1, "high": 1.0}}}, sif=None),
            "lr: students: 'auto:2'; expected one of the students",
        ),
        (changed(lr={"low": 0.1, "high": 1.0, "students": {"static": {"low": 0.1}}}), "lr.students.static: neither"),
        (
            {**SPACE, "parameters": {"lr": SPACE["parameters"]["lr"], "output_dim": {"choices": [4]}}},
            "lr: students: expected `student` before it",
        ),
        ({**SPACE, "budget": {**SPACE["budget"], "student_steps": {"x": 3}}}, "budget.student_steps: 'x'"),
        ({**SPACE, "method": "mcr2"}, "mcr2 has no such parameter"),
    ],
)
def test_a_bad_space_of_students(tmp_path: Path, content: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        load(tmp_path, content)


# What is suggested


def test_students_and_dimensions_have_their_shares(tmp_path: Path) -> None:
    space = load(tmp_path)
    starts = starts_for(space, 12)
    assert starts[:2] == [{"output_dim": d, "student": "static", "lr": 0.02, "sif": 0.01} for d in (4, 8)]
    assert [s["student"] for s in starts[2:6]] == ["auto:1", "auto:1", "teacher", "teacher"]
    pairs = [(s["student"], s["output_dim"]) for s in starts]
    assert {pair: pairs.count(pair) for pair in pairs} == {
        (student, d): 2 for student in space.students for d in (4, 8)
    }
    free = starts_for(space.model_copy(update={"enqueue": ()}), 6, share_dimensions=False)
    assert free == [{"student": student} for student in space.students] * 2


def test_suggestions_stay_in_each_students_range_and_are_the_same_for_any_number_of_workers(tmp_path: Path) -> None:
    clusters = {"low": 2, "high": 9}
    content = {**changed(clusters=clusters), "method": "mcr2_distil", "fixed": {"batch_size": 16, "lambda": 1.0}}
    space = load(tmp_path, content)
    found = []
    for workers in (1, 4):
        starts = starts_for(space, 18)
        ours = Simulation(in_memory(), space, wanted=18, max_pending=4, given=tuple(starts))
        ours.sit(workers=workers)
        found.append([trial_params(t) for t in ours.study.trials])
        names = {name for t in ours.study.trials for name in t.params}
        assert {"lr", "lr@static", "student"} <= names
    assert found[0] == found[1]
    for params in found[0]:
        static = params["student"] == "static"
        assert (0.01 <= params["lr"] <= 0.1) if static else (1e-4 <= params["lr"] <= 1e-3)
        assert static or params["sif"] == 0.001


# A sweep


@pytest.fixture(scope="module")
def swept(
    tmp_path_factory: pytest.TempPathFactory, data_folder: Path, encoder_folder: Path, store: Path, cluster: None
) -> Command:
    """A sweep of a static student, one layer, and the whole teacher."""
    folder = tmp_path_factory.mktemp("students")
    sweep = make_sweep(folder, data_folder, encoder_folder, store, 0, space=yaml.safe_dump(SPACE, sort_keys=False))
    sweep.done("--quantise", "none")
    return sweep


@pytest.mark.slow
def test_a_sweep_chooses_the_best_of_every_student_and_dimension(swept: Command) -> None:
    trials = swept.trials()
    assert {(t.params["student"], t.dim) for t in trials} == {
        (student, d) for student in ("static", "auto:1", "teacher") for d in (4, 8)
    }
    assert all(t.state == "COMPLETE" for t in trials), [t.reason for t in trials]
    lengths = {t.params["student"]: t.rungs[-1].step for t in trials}
    assert lengths["static"] > lengths["auto:1"] == lengths["teacher"]
    students = [r for r in swept.scores() if r.role == "student"]
    rows, pairs = ([r for r in students if bool(r.documents) == pair] for pair in (False, True))
    assert {(r.hyperparameters["student"], r.dim) for r in pairs} == {
        (r.hyperparameters["student"], r.dim) for r in rows
    }, "each searches the teacher's documents too"
    starts = {r.hyperparameters["student"]: r.start for r in rows}
    assert len(rows) == 6 and "static" in starts["static"] and "all layers" in starts["teacher"]
    assert "layers:" in starts["auto:1"], "the ranking has chosen the layer"
    parameters = {r.hyperparameters["student"]: r.parameters for r in rows if r.dim == 4}
    assert parameters["static"] < parameters["auto:1"] < parameters["teacher"]
    confirmed = json.loads((swept.run / "confirmed.json").read_text())
    assert set(confirmed) == {f"{s}, {4 * d}" for s in ("static", "auto:1", "teacher") for d in (4, 8)}
    assert {trial_group(t) for t in swept.study().trials} == {
        CompetitionKey(s, 4 * d) for s in ("static", "auto:1", "teacher") for d in (4, 8)
    }


# Wrong choices


@pytest.mark.parametrize(
    ("method", "choices", "more", "message"),
    [
        ("crd", ["static"], (), "needs an encoder's hidden states"),
        ("hpd", ["static", "auto:9"], (), "expected auto, or auto:N with N from 1 to 4"),
        ("hpd", ["layers:0,4"], (), "layers:0,4: expected rising layer numbers from 0 to 3"),
        ("hpd", ["teacher", "no/such/folder"], (), "no/such/folder"),
        ("mse", ["static", "NARROW"], (), "NARROW"),
        ("crd", ["static:corpus"], (), "needs an encoder's hidden states"),
    ],
)
def test_a_wrong_student_is_one_error_before_anything_runs(
    method: str,
    choices: list[str],
    more: tuple[str, ...],
    message: str,
    tmp_path: Path,
    data_folder: Path,
    encoder_folder: Path,
    narrow_encoder_folder: Path,
    store: Path,
) -> None:
    named = [str(narrow_encoder_folder) if c == "NARROW" else c for c in choices]
    space = {
        "method": method,
        "budget": {"trials": 1, "steps": 1},
        "parameters": {"student": {"choices": named}, "output_dim": {"choices": [8 if method == "hpd" else 32]}},
        "fixed": {"batch_size": 8, "lr": 0.001},
    }
    sweep = make_sweep(tmp_path, data_folder, encoder_folder, store, 0, space=yaml.safe_dump(space, sort_keys=False))
    said = sweep.refused(*more)
    assert message.replace("NARROW", str(narrow_encoder_folder)) in " ".join(said.split())
    assert not sweep.run.exists()
