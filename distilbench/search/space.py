"""Search spaces: YAML files, checked against the method's own hyper-parameter types before anything runs.

method: mcr2
searcher: tpe
budget: {trials: 24, steps: 600, rungs: 3, eta: 3}
parameters:
  output_dim: {choices: [32, 64, 128]}
  lambda: {low: 10, high: 5000, log: true, paper: {50: 2000, 100: 2000, else: 4000}}
  pairs: {choices: [duplicates, noise], paper: duplicates}
  noise: {low: 0.001, high: 0.1, log: true, when: {pairs: noise}}
fixed: {batch_size: 256}
enqueue:
  - {lambda: 100, pairs: noise}
paper_steps: 3000
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, Protocol

import yaml
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from distilbench.choices import Searcher
from distilbench.codes import CompetitionKey, competition_key, stored_bytes
from distilbench.encoders.student import names_of, said_of
from distilbench.errors import InputError
from distilbench.training.params import Params, sweep_default
from distilbench.trials.budget import Budget

Value = bool | int | float | str
ByDimension = dict[int | Literal["else"], Value]
"""A value for each output dimension that is named, and one for all others."""

GIVEN = frozenset({"output_dim", "student"})
"""Parameters that every trial is given, so that each dimension and student has its share."""
PAPER_SHARE = 10
"""A published setting is tried where the budget has at least one in so many of its steps."""


class StudentRange(BaseModel):
    """What a parameter is searched in for one student: `choices`, or `low` to `high`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    choices: tuple[Value, ...] | None = None
    low: float | None = Field(default=None, strict=True, allow_inf_nan=False)
    high: float | None = Field(default=None, strict=True, allow_inf_nan=False)
    log: bool = False
    points: int | None = Field(default=None, ge=2, strict=True)


class Range(BaseModel):
    """One searched parameter: either `choices`, or `low` to `high`, on a logarithmic scale with `log`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    choices: tuple[Value, ...] | None = None
    low: float | None = Field(default=None, strict=True, allow_inf_nan=False)
    high: float | None = Field(default=None, strict=True, allow_inf_nan=False)
    log: bool = False
    paper: Value | ByDimension | None = None
    """The published setting, which may depend on the output dimension."""
    points: int | None = Field(default=None, ge=2, strict=True)
    """How many values of low to high a grid has; None: 3."""
    when: dict[str, Value | tuple[Value, ...]] | None = None
    """Searched only where these other parameters have one of these values; elsewhere it is the method's default."""
    students: dict[str, StudentRange] | None = None
    """What it is searched in instead where the student is one of these, or has fewer of the tokens of one."""

    def paper_at(self, dim: int) -> Value | None:
        """The published value at an output dimension; None where none is known."""
        return self.paper.get(dim, self.paper.get("else")) if isinstance(self.paper, dict) else self.paper

    @property
    def paper_values(self) -> list[Value]:
        """Every published value."""
        values = self.paper.values() if isinstance(self.paper, dict) else [self.paper]
        return [value for value in values if value is not None]

    def active(self, drawn: Mapping[str, Any]) -> bool:
        """Whether `when` holds among parameters that are already drawn."""
        return all(self.meets(name, drawn.get(name)) for name in self.when or ())

    def meets(self, name: str, value: Any) -> bool:
        """Whether what `when` says of one other parameter holds where that has this value; without a word of it, yes."""
        condition = (self.when or {}).get(name)
        allowed = condition if isinstance(condition, tuple) else (condition,)
        values = names_of(str(value)) if name == "student" else (value,)
        return condition is None or any(one in allowed for one in values)

    def of_student(self, student: Any) -> Range | None:
        """What it is searched in for this student, where that is something of its own."""
        own = said_of(str(student), self.students)
        return None if own is None else Range(**own.model_dump(), when=self.when)

    def unit(self, value: float) -> float:
        """Where a number lies between `low` (0) and `high` (1), on the scale that it is searched on."""
        low, high = self._scaled()
        return ((math.log(value) if self.log else value) - low) / (high - low)

    def number(self, unit: float) -> float:
        """The number that lies at `unit`, 0 to 1."""
        low, high = self._scaled()
        at = low + unit * (high - low)
        return min(max(math.exp(at) if self.log else at, self.low or 0.0), self.high or 0.0)

    def _scaled(self) -> tuple[float, float]:
        low, high = self.low or 0.0, self.high or 0.0
        return (math.log(low), math.log(high)) if self.log else (low, high)

    def when_without(self, name: str, left_out: Sequence[Value]) -> dict[str, Value | tuple[Value, ...]] | None:
        """`when` without these values of another parameter; None where it can hold no longer."""
        conditions = dict(self.when or {})
        condition_values = conditions[name]
        values = tuple(
            v
            for v in (condition_values if isinstance(condition_values, tuple) else (condition_values,))
            if v not in left_out
        )
        return {**conditions, name: values} if values else None


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    method: str
    searcher: Searcher = "tpe"
    budget: Budget
    parameters: dict[str, Range]
    fixed: dict[str, Any] = Field(default_factory=dict)
    enqueue: tuple[dict[str, Any], ...] = ()
    paper_steps: int | None = Field(default=None, ge=1, strict=True)


class SearchSpace(BaseModel):
    """A checked search space of `method`."""

    model_config = ConfigDict(frozen=True)

    method: str
    searcher: Searcher = "tpe"
    budget: Budget
    parameters: dict[str, Range]
    fixed: dict[str, Any]
    """Every parameter that is not searched, the method's defaults included."""
    integers: dict[str, bool]
    """Which searched parameters are whole numbers."""
    defaults: dict[str, Any] = {}
    """The method's own defaults of the parameters that are searched under a condition."""
    enqueue: tuple[dict[str, Any], ...] = ()
    """Settings (of any of the searched parameters) that are tried first."""
    paper_steps: int | None = None
    """Optimiser steps of the published training; None: the published setting is tried whatever the budget."""
    asked: dict[str, Range] = {}
    """The searched parameters as the file has them, where choices were left out (`search.fit`)."""
    notes: tuple[str, ...] = ()
    """What was left out, and why, for the reader."""

    @property
    def students(self) -> list[str]:
        """The students that are searched, or the one that is fixed; [] where the run's own is trained."""
        if "student" in self.parameters:
            return [str(c) for c in self.parameters["student"].choices or ()]
        fixed = self.fixed.get("student")
        return [] if fixed is None else [str(fixed)]

    @property
    def dimensions(self) -> list[int]:
        """The output dimensions that are searched."""
        if "output_dim" in self.fixed:
            return [int(self.fixed["output_dim"])]
        return sorted(int(c) for c in self.parameters["output_dim"].choices or ())

    def groups(self, widths_of: Callable[[dict[str, Any]], tuple[int, ...]]) -> list[CompetitionKey]:
        """Every group that some trial can compete in (`competition_key`), rising; `widths_of` as for `judged_widths`."""
        settings = self._settings("student", "output_dim", "nested", "widths", "bits", "codebooks")
        return sorted({competition_key(s, w) for s in settings for w in widths_of(s)})

    @property
    def bytes_competed(self) -> list[int]:
        """The bytes of a vector within which trials compete, rising; [] where they compete within output dimensions."""
        settings = self._settings("student", "output_dim", "bits", "codebooks")
        return sorted({size for setting in settings if (size := stored_bytes(setting)) is not None})

    def bytes_of(self, setting: Mapping[str, Any]) -> int | None:
        """The bytes within which a trial that is given `setting` competes; None where it competes within dimensions, or
        where the sampler decides."""
        values = {**self.fixed, **setting}
        for name in (name for name in ("output_dim", "bits", "codebooks") if name in self.parameters):
            if name not in values:
                if self.parameters[name].active(values):
                    return None
                values[name] = self.defaults[name]
        return stored_bytes(values)

    @property
    def code_settings(self) -> dict[int, dict[str, Any]]:
        """For each of `bytes_competed` the first dimension and code, of those that are searched, that make it up."""
        found: dict[int, dict[str, Any]] = {}
        for values in self._settings("output_dim", "bits", "codebooks"):
            active = {n: v for n, v in values.items() if n in self.parameters and self.parameters[n].active(values)}
            if (size := self.bytes_of(active)) is not None:
                found.setdefault(size, active)
        return dict(sorted(found.items()))

    def _settings(self, *of: str) -> list[dict[str, Any]]:
        """Every combination of what these parameters can be together."""
        settings: list[dict[str, Any]] = [{name: self.fixed[name] for name in of if name in self.fixed}]
        for name in (name for name in self.parameters if name in of):
            settings = [{**setting, name: value} for setting in settings for value in self._values(name, setting)]
        return settings

    def _values(self, name: str, setting: Mapping[str, Any]) -> list[Any]:
        """What parameter `name` can be where those of `setting` are drawn; also its default where that is not decided."""
        _, r = self.searched(name, setting)
        if all(condition in setting for condition in r.when or ()):
            return self._ends(name, r) if r.active(setting) else [self.defaults[name]]
        return self.possible(name)

    def judged_widths(self, widths_of: Callable[[dict[str, Any]], tuple[int, ...]]) -> list[int]:
        """Every width at which `widths_of` (a method's `judged_widths`) says that some trial is judged, rising."""
        return sorted(
            {w for setting in self._settings("student", "output_dim", "nested", "widths") for w in widths_of(setting)}
        )

    def possible(self, name: str) -> list[Any]:
        """The values that parameter `name` can take, also where it is not searched; of a range its two ends."""
        if name in self.fixed:
            return [self.fixed[name]]
        r = self.parameters[name]
        ranges: list[Range | StudentRange] = [r, *(r.students or {}).values()]
        values = list(dict.fromkeys(v for each in ranges for v in self._ends(name, each)))
        elsewhere = self.defaults.get(name)
        return values if elsewhere is None or elsewhere in values else [*values, elsewhere]

    def examples(self, of: Sequence[str]) -> list[dict[str, Any]]:
        """Hyper-parameters of a trial for every combination of what these can be; of the others their first value."""
        return [self.suggest(_First(setting)) for setting in self._settings(*of)]

    def _ends(self, name: str, r: Range | StudentRange) -> list[Any]:
        if r.choices is not None:
            return list(r.choices)
        return [int(end or 0) if self.integers[name] else end for end in (r.low, r.high)]

    def searched(self, name: str, drawn: Mapping[str, Any]) -> tuple[str, Range]:
        """What a parameter is called in the study, and what it is searched in, where `drawn` are those before it.

        The range of one student has a name of its own: values of other students say nothing about it.
        """
        r, student = self.parameters[name], drawn.get("student")
        own = None if student is None else r.of_student(student)
        return (name, r) if own is None else (f"{name}@{student}", own)

    def in_study(self, params: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, BaseDistribution]]:
        """Searched parameters of a trial with their distributions, under the names that they have in the study."""
        drawn, distributions = {}, {}
        values = {**self.fixed, **self.defaults, **params}
        for name in self.parameters:
            if name in params:
                key, _ = self.searched(name, values)
                drawn[key], distributions[key] = params[name], self.distribution(name, values)
        return drawn, distributions

    def paper_setting(self, dim: int) -> dict[str, Value]:
        """The published values of the searched parameters at an output dimension, which is not among them."""
        named = {n: r.paper_at(dim) for n, r in self.parameters.items() if n != "output_dim"}
        return {name: value for name, value in named.items() if value is not None}

    @property
    def paper_dimensions(self) -> list[int]:
        """The output dimensions at which the published setting is tried.

        A setting made for a long training is no good start of a short one. So it is tried at every dimension where the
        budget has the published steps (or `paper_steps` is not given), at the largest dimension alone where it has at least
        a tenth of them, and not at all below that.
        """
        steps, published = self.budget.steps, self.paper_steps or 0
        if steps >= published:
            return self.dimensions
        return self.dimensions[-1:] if PAPER_SHARE * steps >= published else []

    def distribution(self, name: str, drawn: Mapping[str, Any] = MappingProxyType({})) -> BaseDistribution:
        """What Optuna draws the searched parameter `name` from, where `drawn` are those before it."""
        _, r = self.searched(name, drawn)
        if r.choices is not None:
            return CategoricalDistribution(r.choices)
        low, high = r.low or 0.0, r.high or 0.0
        if self.integers[name]:
            return IntDistribution(int(low), int(high), log=r.log)
        return FloatDistribution(low, high, log=r.log)

    def suggest(self, trial: Suggester) -> dict[str, Any]:
        """All hyper-parameters of a trial. One whose condition does not hold has its default."""
        drawn: dict[str, Any] = dict(self.fixed)
        for name in self.parameters:
            key, r = self.searched(name, drawn)
            if not r.active(drawn):
                drawn[name] = self.defaults[name]
            elif r.choices is not None:
                drawn[name] = trial.suggest_categorical(key, r.choices)
            elif self.integers[name]:
                drawn[name] = trial.suggest_int(key, int(r.low or 0), int(r.high or 0), log=r.log)
            else:
                drawn[name] = trial.suggest_float(key, r.low or 0.0, r.high or 0.0, log=r.log)
        return drawn


class Suggester(Protocol):
    """An Optuna trial, as far as a search space uses it."""

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        """One of `choices`."""

    def suggest_int(self, name: str, low: int, high: int, *, log: bool) -> int:
        """A whole number from `low` to `high`."""

    def suggest_float(self, name: str, low: float, high: float, *, log: bool) -> float:
        """A number from `low` to `high`."""


class _First:
    """Suggests what is given, and the first value of everything else."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.given = given

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        """The given value where it is one of the choices, or the first of these."""
        value = self.given.get(name.partition("@")[0])
        return value if value in choices else choices[0]

    def suggest_int(self, name: str, low: int, high: int, *, log: bool) -> int:
        """The lowest."""
        return low

    def suggest_float(self, name: str, low: float, high: float, *, log: bool) -> float:
        """The lowest."""
        return low


class _Loader(yaml.SafeLoader):
    """Safe YAML in which 1e-5 is a number, as it is everywhere else, and a key may come once."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen_keys: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen_keys:
                raise yaml.constructor.ConstructorError(
                    problem=f"{key.value} is given twice", problem_mark=key.start_mark
                )
            seen_keys.add(str(key.value))
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(r"[-+]?\d+[eE][-+]?\d+$"), list("-+0123456789"))


def read_yaml(path: Path) -> Any:
    """The content of a YAML file.

    Raises:
        InputError: it cannot be read, is not YAML, or gives a key twice.
    """
    try:
        return yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)  # noqa: S506 -- derived from SafeLoader
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not YAML: {' '.join(str(error).split())}") from None


NATIVE = "native"
"""As an output dimension: the width that the student has by itself."""


def load_space(
    path: Path, method: str, params: type[Params], native: int | Callable[[Sequence[str]], int]
) -> SearchSpace:
    """Read and check a search space; `native` is what an output dimension of that name stands for, or says it of the students
    that the space names.

    Raises:
        InputError: not readable, not YAML, of another method, or with a parameter that `method` does not have, an empty
            range, a value of a wrong type or out of the parameter's own range, or low above high. The message names the
            file, the parameter, the value and what was expected.
    """
    raw = read_yaml(path)
    try:
        file = _File.model_validate(raw)
    except ValidationError as error:
        raise InputError(first_error(path, error)) from None
    if not isinstance(native, int):
        named = file.parameters["student"].choices if "student" in file.parameters else (file.fixed.get("student"),)
        students = [str(student) for student in named or () if student is not None]
        native = native(students) if _names_native(file) else 0
    file = _with_native(file, native)
    if file.method != method:
        raise InputError(f"{path}: method: it is a space of {file.method!r}; expected {method!r}")
    fields = {field.alias or name: field for name, field in params.model_fields.items()}
    for name in [*file.parameters, *file.fixed]:
        if name not in fields:
            raise InputError(f"{path}: {name}: {method} has no such parameter; it has {', '.join(sorted(fields))}")
    both = sorted(file.parameters.keys() & file.fixed.keys())
    if both:
        raise InputError(f"{path}: {both[0]}: both searched and fixed; expected one of the two")
    _check_students(path, file)
    integers = {name: _check_range(path, name, r, fields[name]) for name, r in file.parameters.items()}
    _check_conditions(path, file, fields)
    for number, setting in enumerate(file.enqueue, start=1):
        check_setting(path, f"enqueue, setting {number}", setting, file.parameters, fields)
    for name, value in file.fixed.items():
        check_value(path, name, "fixed", value, fields[name])
    required = [n for n, f in fields.items() if f.is_required() and n not in file.parameters and n not in file.fixed]
    if required:
        raise InputError(f"{path}: {required[0]}: neither searched nor fixed; {method} needs it")
    if "output_dim" in file.parameters and file.parameters["output_dim"].choices is None:
        raise InputError(f"{path}: output_dim: low/high; expected choices, since the best student of each is reported")
    defaults = {n: sweep_default(f) for n, f in fields.items() if not f.is_required()}
    fixed = {n: value for n, value in defaults.items() if n not in file.parameters} | file.fixed
    conditional = {n: value for n, value in defaults.items() if n in file.parameters and file.parameters[n].when}
    unnamed = {n: sweep_default(f) for n, f in Budget.model_fields.items() if n not in file.budget.model_fields_set}
    as_json = TypeAdapter(dict[str, Any])
    return SearchSpace(
        method=method,
        searcher=file.searcher,
        budget=file.budget.model_copy(update=unnamed),
        parameters=file.parameters,
        fixed=as_json.dump_python(fixed, mode="json"),
        integers=integers,
        defaults=as_json.dump_python(conditional, mode="json"),
        enqueue=file.enqueue,
        paper_steps=file.paper_steps,
    )


def _check_conditions(path: Path, file: _File, fields: Mapping[str, FieldInfo]) -> None:
    drawn_before = dict(file.fixed)  # drawn before the parameter at hand
    for name, r in file.parameters.items():
        for other, values in (r.when or {}).items():
            if other == name or other not in drawn_before:
                raise InputError(
                    f"{path}: {name}: when names {other}; expected a parameter that stands before it, or a fixed one"
                )
            for value in values if isinstance(values, tuple) else (values,):
                check_value(path, name, f"when {other}", value, fields[other])
                choices = file.parameters[other].choices if other in file.parameters else None
                known = choices if other != "student" else [name for c in choices or () for name in names_of(str(c))]
                if choices is not None and value not in (known or ()):
                    raise InputError(
                        f"{path}: {name}: when {other} is {value!r}; expected one of its choices {list(choices)}"
                    )
        if r.when and fields[name].is_required():
            raise InputError(f"{path}: {name}: when, but the method has no default for it elsewhere")
        if r.when and name == "output_dim":
            raise InputError(f"{path}: output_dim: when; expected no condition, since every student has one")
        drawn_before[name] = r


def check_setting(
    path: Path | str, where: str, setting: Any, parameters: Mapping[str, Range], fields: Mapping[str, FieldInfo]
) -> None:
    """Check one setting to try first: searched parameters, each with a value that the space can give it.

    Raises:
        InputError: it is not; the message names the file, the place, the value and what was expected.
    """
    if not isinstance(setting, dict) or not setting:
        raise InputError(f"{path}: {where}: it is {setting!r}; expected parameters with values")
    for name, value in setting.items():
        if name not in parameters:
            raise InputError(f"{path}: {where}: {name} is not searched; expected some of {', '.join(parameters)}")
        check_value(path, name, where, value, fields[name])
        r = parameters[name]
        if r.students and any(is_within(own, value) for own in r.students.values()):
            continue
        if is_within(r, value):
            continue
        if r.choices is not None:
            raise InputError(f"{path}: {where}: {name} is {value!r}; expected one of the choices {list(r.choices)}")
        raise InputError(f"{path}: {where}: {name} is {value!r}; expected from {r.low:g} to {r.high:g}")


def is_within(r: Range | StudentRange, value: Any) -> bool:
    """Whether a parameter that is searched in this range can have the value."""
    if r.choices is not None:
        return value in r.choices
    return isinstance(value, int | float) and (r.low or 0.0) <= float(value) <= (r.high or 0.0)


def _check_students(path: Path, file: _File) -> None:
    """What a space says of students: the choices, and the ranges and steps of some of them."""
    searched, fixed = file.parameters.get("student"), file.fixed.get("student")
    if searched is not None and searched.choices is None:
        raise InputError(f"{path}: student: low/high; expected choices, such as static, auto:2, teacher or a folder")
    if searched is not None and (searched.when or searched.students):
        raise InputError(f"{path}: student: a condition on it; expected none, since every trial has one")
    known = [str(c) for c in (searched.choices if searched is not None else (fixed,)) or () if c is not None]
    drawn_before = "student" in file.fixed
    for name, r in file.parameters.items():
        drawn_before = drawn_before or name == "student"
        if r.students and not drawn_before:
            raise InputError(f"{path}: {name}: students: expected `student` before it, or under fixed")
        for student in r.students or ():
            _check_named(path, f"{name}: students", student, known)
        if r.students and name == "output_dim":
            raise InputError(f"{path}: output_dim: students; expected the same dimensions for all students")
    for student in file.budget.student_steps or ():
        _check_named(path, "budget.student_steps", student, known)


def _check_named(path: Path, where: str, student: str, known: Sequence[str]) -> None:
    if not any(student in names_of(one) for one in known):
        raise InputError(f"{path}: {where}: {student!r}; expected one of the students {list(known)}")


def _names_native(file: _File) -> bool:
    searched, fixed = file.parameters.get("output_dim"), file.fixed.get("output_dim")
    values = [fixed, *((searched.choices or ()) if searched else ()), *(s.get("output_dim") for s in file.enqueue)]
    return NATIVE in values


def _with_native(file: _File, native: int) -> _File:
    if any(setting.get("output_dim") == NATIVE for setting in file.enqueue):
        enqueued = tuple({**s, "output_dim": native} if s.get("output_dim") == NATIVE else s for s in file.enqueue)
        file = file.model_copy(update={"enqueue": enqueued})
    searched, fixed = file.parameters.get("output_dim"), file.fixed.get("output_dim")
    if fixed == NATIVE:
        return file.model_copy(update={"fixed": {**file.fixed, "output_dim": native}})
    if searched is None or NATIVE not in (searched.choices or ()):
        return file
    choices = tuple(native if c == NATIVE else c for c in searched.choices or () if c == NATIVE or c != native)
    parameters = {**file.parameters, "output_dim": searched.model_copy(update={"choices": choices})}
    return file.model_copy(update={"parameters": parameters})


def _check_range(path: Path, name: str, r: Range, field: FieldInfo) -> bool:
    for paper in r.paper_values:
        check_value(path, name, "paper", paper, field)
    if r.choices is not None:
        if r.low is not None or r.high is not None or r.log:
            raise InputError(f"{path}: {name}: both choices and low/high/log; expected one of the two")
        if not r.choices:
            raise InputError(f"{path}: {name}: choices is []; expected at least one value")
        if len(set(r.choices)) < len(r.choices):
            raise InputError(f"{path}: {name}: choices is {list(r.choices)}; expected each value once")
        for value in r.choices:
            check_value(path, name, "choices", value, field)
        for paper in r.paper_values:
            if name != "output_dim" and paper not in r.choices:
                raise InputError(f"{path}: {name}: paper is {paper!r}; expected one of the choices {list(r.choices)}")
        _check_student_ranges(path, name, r, field)
        return field.annotation is int and any(own.choices is None for own in (r.students or {}).values())
    if r.low is None or r.high is None:
        raise InputError(f"{path}: {name}: neither choices nor both of low and high are given")
    if r.low > r.high:
        raise InputError(f"{path}: {name}: low is {r.low:g}, above high, {r.high:g}")
    if r.low == r.high:
        raise InputError(
            f"{path}: {name}: low and high are both {r.low:g}: an empty range; put a single value under fixed"
        )
    if r.log and r.low <= 0:
        raise InputError(f"{path}: {name}: low is {r.low:g}; expected above 0 on a logarithmic scale")
    integer = field.annotation is int
    if not integer and field.annotation is not float:
        raise InputError(f"{path}: {name}: low/high on a parameter that is not a number; expected choices")
    for key, value in (("low", r.low), ("high", r.high)):
        check_value(path, name, key, int(value) if integer and value == int(value) else value, field)
    for paper in r.paper_values:
        if not r.low <= float(paper) <= r.high:
            raise InputError(f"{path}: {name}: paper is {paper!r}; expected from {r.low:g} to {r.high:g}")
    _check_student_ranges(path, name, r, field)
    return integer


def _check_student_ranges(path: Path, name: str, r: Range, field: FieldInfo) -> None:
    for student, own in (r.students or {}).items():
        _check_range(path, f"{name}: students: {student}", Range(**own.model_dump()), field)


def check_value(path: Path | str, name: str, key: str, value: Any, field: FieldInfo) -> None:
    """Check a value from a file against the method's own field: type and range.

    Raises:
        InputError: it is not; the message names the file, the parameter, the value and what was expected.
    """
    # The method's own field, constraints included: one definition serves the method and its search space.
    kind: Any = Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation
    adapter: TypeAdapter[Any] = TypeAdapter(kind, config=ConfigDict(allow_inf_nan=False))
    try:
        # From a file a number must be a number, but lists stand for tuples.
        adapter.validate_python(tuple(value) if isinstance(value, list) else value, strict=True)
    except ValidationError as error:
        raise InputError(f"{path}: {name}: {key} is {value!r}: {error.errors()[0]['msg'].lower()}") from None


def first_error(path: Path | str, error: ValidationError) -> str:
    """The first of pydantic's errors in one line: file, place, what is wrong, the value."""
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    return f"{path}: {where or 'the file'}: {first['msg'].lower()} (got {str(first['input'])[:80]!r})"
