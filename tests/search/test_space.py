"""Search spaces: a good file gives the right draws, a bad one names file, parameter and value; which file a sweep takes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import optuna
import pytest
import yaml

from distilbench.choices import BUDGETS
from distilbench.errors import InputError
from distilbench.methods import get_method
from distilbench.methods.mcr2 import MCR2Params
from distilbench.search.space import SearchSpace
from distilbench.search.space_files import load_space, shipped_folder, space_file
from distilbench.trials.budget import Budget

ROOT = Path(__file__).parents[2]

GOOD = """
method: mcr2
budget: {trials: 6, steps: 90, rungs: 3, eta: 3}
parameters:
  output_dim: {choices: [8, 4]}
  lr: {low: 0.0001, high: 0.01, log: true}
  clusters: {low: 2, high: 9}
  eps2: {low: 0.5, high: 1}
  head: {choices: [elu, residual]}
  decay: {choices: [true, false]}
fixed: {batch_size: 16, lambda: 1}
"""


def load(tmp_path: Path, text: str | bytes = GOOD, native: int = 32) -> SearchSpace:
    path = tmp_path / "space.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load_space(path, "mcr2", MCR2Params, native)


def changed(**sections: Any) -> str:
    """The good file with parameters, fixed values or budget entries replaced; None removes one."""
    raw = yaml.safe_load(GOOD)
    for section, changes in sections.items():
        if not isinstance(changes, dict):
            raw[section] = changes
            continue
        for name, value in changes.items():
            raw[section].pop(name, None)
            if value is not None:
                raw[section][name] = value
    return yaml.safe_dump(raw)


# Good files


def test_a_space_knows_its_dimensions_and_defaults(tmp_path: Path) -> None:
    space = load(tmp_path)
    assert space.dimensions == [4, 8]
    assert space.fixed["batch_size"] == 16 and space.fixed["lambda"] == 1
    assert space.fixed["temperature"] == MCR2Params.model_fields["temperature"].default
    assert not space.fixed.keys() & space.parameters.keys()
    assert space.possible("clusters") == [2, 9] and {type(v) for v in space.possible("clusters")} == {int}
    assert space.possible("eps2") == [0.5, 1]
    assert space.possible("head") == ["elu", "residual"]
    assert space.possible("batch_size") == [16]


def test_draws_are_of_the_right_types_and_in_range(tmp_path: Path) -> None:
    space = load(tmp_path)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    drawn = [space.suggest(study.ask()) for _ in range(60)]
    assert {type(d["clusters"]) for d in drawn} == {int} and {d["clusters"] for d in drawn} == set(range(2, 10))
    assert {type(d["lr"]) for d in drawn} == {float} and all(0.0001 <= d["lr"] <= 0.01 for d in drawn)
    assert sum(d["lr"] < 0.001 for d in drawn) > 20  # half of a logarithmic scale
    assert sum(d["eps2"] < 0.75 for d in drawn) > 20  # half of a linear one
    assert {d["output_dim"] for d in drawn} == {4, 8} and {type(d["output_dim"]) for d in drawn} == {int}
    assert {d["decay"] for d in drawn} == {True, False} and {type(d["decay"]) for d in drawn} == {bool}
    for d in drawn:
        MCR2Params.model_validate(d)


@pytest.mark.parametrize(
    ("change", "dimensions"),
    [
        ({"parameters": {"output_dim": {"choices": [8, "native", 4]}}}, [4, 8, 32]),
        ({"parameters": {"output_dim": {"choices": ["native"]}}}, [32]),
        ({"parameters": {"output_dim": {"choices": [32, 4, "native"]}}}, [4, 32]),  # the same width counts once
        ({"parameters": {"output_dim": None}, "fixed": {"output_dim": "native"}}, [32]),
    ],
)
def test_a_dimension_may_be_the_students_own(tmp_path: Path, change: dict[str, Any], dimensions: list[int]) -> None:
    space = load(tmp_path, changed(**change), native=32)
    assert space.dimensions == sorted(space.possible("output_dim")) == dimensions
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    assert {space.suggest(study.ask())["output_dim"] for _ in range(30)} == set(dimensions)


SHIPPED = sorted(
    path
    for folder in (*BUDGETS, "static", "front", "studies", "proof/*")
    for path in (ROOT / "search_spaces").glob(f"{folder}/*.yaml")
    if re.search("^method:", path.read_text(), re.MULTILINE)  # the other studies are configurations
)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_every_shipped_space_loads_for_its_method_and_its_settings_are_valid(path: Path) -> None:
    method = yaml.safe_load(path.read_text())["method"]
    params = get_method(method).params_type
    space = load_space(path, method, params, native=384)
    assert space.dimensions and space.budget.trials >= len(space.dimensions)
    lowest = {name: space.possible(name)[0] for name in space.parameters}
    for setting in ({}, *space.enqueue):
        params.model_validate({**space.fixed, **lowest, **setting})


@pytest.mark.parametrize(
    ("budget", "total", "wanted"),
    [
        ({"rungs": 3, "eta": 3}, 450, [50, 150, 450]),
        ({"rungs": 1}, 450, [450]),
        ({"rungs": 3, "eta": 3}, 5, [1, 5]),  # rungs that fall together are one
        ({"rungs": 3, "eta": 2}, 1, [1]),
    ],
)
def test_rungs(budget: dict[str, int], total: int, wanted: list[int]) -> None:
    assert Budget(trials=1, steps=1, **budget).rung_steps(total) == wanted


def conditional(**when: Any) -> str:
    """The good file with a parameter under a condition."""
    raw = yaml.safe_load(GOOD)
    raw["parameters"]["pairs"] = {"choices": ["duplicates", "noise"]}
    raw["parameters"]["noise"] = {"low": 0.001, "high": 0.1, "when": when}
    return yaml.safe_dump(raw, sort_keys=False)


@pytest.mark.parametrize("wanted", ["noise", ["noise", "noise"]])
def test_a_parameter_under_a_condition_is_drawn_where_it_holds(tmp_path: Path, wanted: Any) -> None:
    space = load(tmp_path, conditional(pairs=wanted))
    default = MCR2Params.model_fields["noise"].default
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    trials = [study.ask() for _ in range(30)]
    for trial, drawn in [(t, space.suggest(t)) for t in trials]:
        assert ("noise" in trial.params) == (drawn["pairs"] == "noise")
        assert drawn["pairs"] == "noise" or drawn["noise"] == default
    assert {t.params["pairs"] for t in trials} == {"noise", "duplicates"}
    assert space.possible("noise") == [0.001, 0.1] or default in space.possible("noise")


@pytest.mark.parametrize(
    ("when", "message"),
    [
        ({"absent": 1}, r"noise: when names absent; expected a parameter that stands before it, or a fixed one"),
        ({"noise": 0.01}, r"noise: when names noise; expected"),
        ({"pairs": "nois"}, r"noise: when pairs is 'nois': "),
        ({"head": ["elu", 3]}, r"noise: when head is 3: "),
        ({"output_dim": 5}, r"noise: when output_dim is 5; expected one of its choices \[8, 4\]"),
    ],
)
def test_a_bad_condition(tmp_path: Path, when: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        load(tmp_path, conditional(**when))


def test_settings_to_try_first(tmp_path: Path) -> None:
    given = [{"lr": 0.002, "head": "residual"}, {"output_dim": "native", "clusters": 3}]
    raw = yaml.safe_load(changed(parameters={"output_dim": {"choices": [8, "native"]}}, enqueue=given))
    space = load(tmp_path, yaml.safe_dump(raw), native=32)
    assert space.enqueue == (given[0], {"output_dim": 32, "clusters": 3})


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({}, r"enqueue, setting 1: it is \{\}; expected parameters with values"),
        ({"batch_size": 8}, r"enqueue, setting 1: batch_size is not searched; expected some of .*lr"),
        ({"lr": 0.5}, r"enqueue, setting 1: lr is 0\.5; expected from 0\.0001 to 0\.01"),
        ({"lr": "fast"}, r"lr: enqueue, setting 1 is 'fast': .*number"),
        ({"clusters": 2.5}, r"clusters: enqueue, setting 1 is 2\.5: .*integer"),
        ({"output_dim": 5}, r"enqueue, setting 1: output_dim is 5; expected one of the choices \[8, 4\]"),
    ],
)
def test_a_bad_setting_to_try_first(tmp_path: Path, setting: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        load(tmp_path, changed(enqueue=[setting]))


# Bad files

BAD = [
    # unknown parameter
    ({"parameters": {"lamda": {"low": 1, "high": 2}}}, r"lamda: mcr2 has no such parameter; it has .*lambda"),
    # The module's own name of it: two names of one thing would be two parameters.
    ({"fixed": {"lam": 3}}, r"lam: mcr2 has no such parameter"),
    # empty range
    ({"parameters": {"head": {"choices": []}}}, r"head: choices is \[\]; expected at least one value"),
    ({"parameters": {"lr": {"low": 0.1, "high": 0.1}}}, r"lr: from 0\.1 to 0\.1: an empty range"),
    ({"parameters": {"lr": {}}}, r"lr: neither choices nor both of low and high"),
    # low above high
    ({"parameters": {"lr": {"low": 0.1, "high": 0.01}}}, r"lr: from 0\.1 to 0\.01: an empty range"),
    # wrong type
    ({"parameters": {"lr": {"low": "small", "high": 0.1}}}, r"parameters\.lr\.low: .*number.*\(got 'small'\)"),
    ({"parameters": {"lr": 0.1}}, r"parameters\.lr: .*\(got '0\.1'\)"),
    ({"parameters": {"lr": {"choices": ["fast"]}}}, r"lr: choices is 'fast': .*number"),
    ({"parameters": {"clusters": {"choices": [4, 8.5]}}}, r"clusters: choices is 8\.5: .*integer"),
    ({"parameters": {"clusters": {"low": 2, "high": 8.5}}}, r"clusters: high is 8\.5: .*integer"),
    ({"parameters": {"head": {"low": 1, "high": 2}}}, r"head: low/high on a parameter that is not a number"),
    ({"parameters": {"head": {"choices": ["elu", "gelu"]}}}, r"head: choices is 'gelu': .*'elu' or 'residual'"),
    ({"fixed": {"batch_size": "16"}}, r"batch_size: fixed is '16': .*integer"),
    # out of the parameter's own range
    ({"fixed": {"batch_size": 1}}, r"batch_size: fixed is 1: .*greater than or equal to 2"),
    ({"parameters": {"clusters": {"low": 0, "high": 5}}}, r"clusters: low is 0: .*greater than or equal to 1"),
    # `native` is 32 here
    ({"parameters": {"output_dim": {"choices": [4, 4]}}}, r"output_dim: choices is \[4, 4\]; expected .* each"),
    ({"parameters": {"output_dim": {"choices": ["Native"]}}}, r"output_dim: choices is 'Native': .*integer"),
    # no number that a draw could come from
    ({"parameters": {"eps2": {"low": 0.1, "high": float("inf")}}}, r"eps2\.high: .*finite"),
    ({"fixed": {"lambda": float("inf")}}, r"lambda: fixed is inf: .*finite"),
    ({"parameters": {"eps2": {"low": 0, "high": 1, "log": True}}}, r"eps2: low is 0; expected above 0 on a log"),
    # missing and contradictory
    ({"fixed": {"batch_size": None}}, r"batch_size: neither searched nor fixed; mcr2 needs it"),
    ({"parameters": {"output_dim": None}}, r"output_dim: neither searched nor fixed"),
    ({"fixed": {"lr": 0.1}}, r"lr: both searched and fixed"),
    ({"parameters": {"head": {"choices": ["elu"], "log": True}}}, r"head: both choices and low/high/log"),
    (
        {"parameters": {"head": {"choices": ["elu", "elu"]}}},
        r"head: choices is \['elu', 'elu'\]; expected .* each value once",
    ),
    ({"parameters": {"lr": {"low": 0.1, "high": 1, "step": 2}}}, r"parameters\.lr\.step: .*not permitted"),
    # Each searched dimension has a best student of its own.
    ({"parameters": {"output_dim": {"low": 2, "high": 9}}}, r"output_dim: .*expected choices"),
    # method and budget
    ({"method": "hpd"}, r"method: it is a space of 'hpd'; expected 'mcr2'"),
    ({"budget": {"trials": 0}}, r"budget\.trials: .*greater than or equal to 1 \(got '0'\)"),
    ({"budget": {"steps": None}}, r"budget\.steps: field required"),
    ({"budget": {"hours": 3}}, r"budget\.hours: .*not permitted"),
    ({"notes": "hello"}, r"notes: .*not permitted"),
]


@pytest.mark.parametrize(("change", "message"), BAD)
def test_a_bad_space_names_file_parameter_and_value(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as error:
        load(tmp_path, changed(**change))
    assert re.match(rf"{re.escape(str(tmp_path))}/space\.yaml: (parameters\.)?{message}", str(error.value))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"the file: .*\(got 'None'\)"),
        ("- a list", r"the file: "),
        ("method: [", r"not YAML: .*line"),
        ("method: mcr2\n\tbudget: 3", r"not YAML: .*line 2"),
        ("a: 1\n---\nb: 2", r"not YAML: .*single document"),
        (b"method: \xff", r"not YAML: "),
        (b"method: m\x00", r"not YAML: "),
        # A search space may come from anybody: it must not be able to run anything.
        ("!!python/object/apply:os.system ['touch pwned']", r"not YAML: .*python/object"),
        (GOOD.replace("mcr2", "!!python/name:os.system"), r"not YAML: .*python/name"),
        # The later of two would silently win.
        (GOOD.replace("fixed: {", "fixed: {batch_size: 8, "), r"not YAML: .*batch_size.* twice"),
    ],
)
def test_a_file_that_is_no_search_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | bytes, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=rf"space\.yaml: {message}") as error:
        load(tmp_path, text)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize("name", ["absent.yaml", "folder.yaml"])
def test_a_file_that_cannot_be_read(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder.yaml").mkdir()
    with pytest.raises(InputError, match=rf"{name}: cannot be read: \S"):
        load_space(tmp_path / name, "mcr2", MCR2Params, 32)


# Which search space a sweep takes: the user's own, or one that comes along


@pytest.fixture
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("method", "named", "given", "folder"),
    [
        ("hpd", None, {"data": False}, "small"),
        ("hpd", None, {"data": True}, "real"),
        ("hpd", "cluster", {"data": False}, "cluster"),
        ("hpd", "front", {"data": True, "static": True}, "front"),
        ("hpd", None, {"data": True, "static": True}, "static"),
        ("hpd", "small", {"data": True, "static": True}, "static"),
        ("mcr2", "small", {"data": True, "static": True}, "small"),  # which has none for static students
    ],
)
def test_a_folder_that_comes_along(
    working_folder: Path, method: str, named: str | None, given: dict[str, bool], folder: str
) -> None:
    assert space_file(method, named, **given) == (shipped_folder() / folder / f"{method}.yaml", True)  # type: ignore[arg-type]


def test_the_users_own_is_the_one_named_or_that_of_the_working_folder(working_folder: Path) -> None:
    own = working_folder / "search_spaces"
    own.mkdir()
    (own / "hpd.yaml").write_text("method: hpd\n")
    assert space_file("hpd", None, data=True) == (Path("search_spaces/hpd.yaml"), False)
    assert space_file("hpd", str(own), data=True) == (own / "hpd.yaml", False)
    assert space_file("mse", str(own / "hpd.yaml"), data=True) == (own / "hpd.yaml", False)
    assert space_file("hpd", str(shipped_folder() / "front"), data=True).shipped
    with pytest.raises(InputError, match=r"^--space nosuch: .*cluster, front, .*real.*small"):
        space_file("mse", "nosuch", data=True)
    with pytest.raises(InputError, match=f"^--space {own}: expected mse.yaml in this folder"):
        space_file("mse", str(own), data=True)
    with pytest.raises(
        InputError, match=r"^no search space: looked for search_spaces/new.yaml and .*/small/new.yaml; "
    ):
        space_file("new", None, data=False)
