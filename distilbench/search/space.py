"""Search spaces: what each hyper-parameter of a method is searched in (`space_files` reads and checks them)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import BaseTrial
from pydantic import BaseModel, ConfigDict, Field, model_validator

from distilbench.choices import Searcher
from distilbench.codes import CompetitionKey, competition_key, nested_widths, stored_bytes
from distilbench.encoders.student import aliases, setting_for
from distilbench.trials.budget import Budget

Value = bool | int | float | str

GIVEN = frozenset({"output_dim", "student"})
"""Parameters that every trial is given, so that each dimension and student has its share."""


class Range(BaseModel):
    """One searched parameter: either `choices`, or `low` to `high`, on a logarithmic scale with `log`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    choices: tuple[Value, ...] | None = None
    low: float | None = Field(default=None, strict=True, allow_inf_nan=False)
    high: float | None = Field(default=None, strict=True, allow_inf_nan=False)
    log: bool = False
    when: dict[str, Value | tuple[Value, ...]] | None = None
    """Searched only where these other parameters have one of these values; elsewhere it is the method's default."""
    students: dict[str, Range] | None = None
    """Ranges that replace this one for some students, by name, and for the same students with fewer tokens."""

    @model_validator(mode="after")
    def _choices_or_ends(self) -> Range:
        if self.choices is not None:
            if self.low is not None or self.high is not None or self.log:
                raise ValueError("both choices and low/high/log; expected one of the two")
            if not self.choices or len(set(self.choices)) < len(self.choices):
                raise ValueError(f"choices is {list(self.choices)}; expected at least one value, and each value once")
        elif self.low is None or self.high is None:
            raise ValueError("neither choices nor both of low and high are given")
        elif self.low >= self.high:
            raise ValueError(f"from {self.low:g} to {self.high:g}: an empty range; put a single value under fixed")
        elif self.log and self.low <= 0:
            raise ValueError(f"low is {self.low:g}; expected above 0 on a logarithmic scale")
        if any(own.when or own.students for own in self.ranges[1:]):
            raise ValueError("students: a condition; expected choices, or low and high")
        return self

    @property
    def ranges(self) -> tuple[Range, ...]:
        """This one, and those of single students."""
        return (self, *(self.students or {}).values())

    @property
    def values(self) -> list[Any]:
        """The choices, or the two ends."""
        if self.choices is not None:
            return list(self.choices)
        return [self.low, self.high]

    @property
    def distribution(self) -> BaseDistribution:
        """The same as Optuna has it."""
        if self.choices is not None:
            return CategoricalDistribution(self.choices)
        return (IntDistribution if isinstance(self.low, int) else FloatDistribution)(self.low, self.high, log=self.log)

    @property
    def is_numeric(self) -> bool:
        """Whether all choices are numbers."""
        return all(isinstance(c, int | float) and not isinstance(c, bool) for c in self.choices or ())

    def active(self, drawn: Mapping[str, Any]) -> bool:
        """Whether `when` holds among parameters that are already drawn."""
        return all(self.meets(name, drawn.get(name)) for name in self.when or ())

    def meets(self, name: str, value: Any) -> bool:
        """Whether what `when` says of one other parameter holds where that has this value; without a word of it, yes."""
        condition = (self.when or {}).get(name)
        allowed = condition if isinstance(condition, tuple) else (condition,)
        values = aliases(str(value)) if name == "student" else (value,)
        return condition is None or any(one in allowed for one in values)

    def of_student(self, student: Any) -> Range | None:
        """The range for this student; None where it has none of its own."""
        own = setting_for(str(student), self.students)
        return None if own is None else own.model_copy(update={"when": self.when})

    def holds(self, value: Any) -> bool:
        """Whether a parameter that is searched in this range can have the value."""
        if self.choices is not None:
            return value in self.choices
        low, high = self.values
        return isinstance(value, int | float) and low <= value <= high

    def nearest(self, value: Any) -> Value:
        """The choice that is nearest to a number."""
        return min(self.choices or (), key=lambda c: abs(float(c) - float(value)))

    def when_without(self, name: str, left_out: Sequence[Value]) -> dict[str, Value | tuple[Value, ...]] | None:
        """`when` without these values of another parameter; None where it can hold no longer."""
        conditions = dict(self.when or {})
        condition = conditions[name]
        values = tuple(v for v in (condition if isinstance(condition, tuple) else (condition,)) if v not in left_out)
        return {**conditions, name: values} if values else None


class SpaceContent(BaseModel):
    """A search space of `method`, as its file has it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    method: str
    searcher: Searcher = "tpe"
    budget: Budget
    parameters: dict[str, Range]
    fixed: dict[str, Any] = {}
    enqueue: tuple[dict[str, Any], ...] = ()
    """Settings (of any of the searched parameters) that are tried first."""

    @property
    def students(self) -> list[str]:
        """The students that are searched, or the one that is fixed; [] where the run's own is trained."""
        if "student" in self.parameters:
            return [str(c) for c in self.parameters["student"].choices or ()]
        fixed = self.fixed.get("student")
        return [] if fixed is None else [str(fixed)]


class SearchSpace(SpaceContent):
    """A checked search space; every parameter that is not searched is `fixed`, the method's defaults included."""

    defaults: dict[str, Any] = {}
    """The method's own defaults of the parameters that are searched under a condition."""
    requested: dict[str, Range] = {}
    """The searched parameters as the file has them, where choices were left out (`search.restrict_space`)."""
    notes: tuple[str, ...] = ()
    """The choices that were left out, and why, for the reader."""

    @property
    def dimensions(self) -> list[int]:
        """The output dimensions that are searched."""
        if "output_dim" in self.fixed:
            return [int(self.fixed["output_dim"])]
        return sorted(int(c) for c in self.parameters["output_dim"].choices or ())

    @property
    def is_grid(self) -> bool:
        """Whether no more is searched than students and output dimensions: every combination is tried once."""
        return self.parameters.keys() <= GIVEN

    @property
    def groups(self) -> list[CompetitionKey]:
        """Every group that some trial can compete in (`competition_key`), rising."""
        settings = self._settings("student", "output_dim", "nested", "widths", "bits", "codebooks")
        return sorted({competition_key(s, w) for s in settings for w in nested_widths(s)})

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
        """By the bytes of a vector within which trials compete, rising, the first searched dimension and code that make
        them up; {} where trials compete within output dimensions."""
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
        """The possible values of a parameter once those of `setting` are drawn, and its default if that is still open."""
        _, r = self.searched(name, setting)
        if all(condition in setting for condition in r.when or ()):
            return r.values if r.active(setting) else [self.defaults[name]]
        return self.possible(name)

    @property
    def judged_widths(self) -> list[int]:
        """Every width at which some trial is judged, rising."""
        settings = self._settings("student", "output_dim", "nested", "widths")
        return sorted({w for setting in settings for w in nested_widths(setting)})

    def possible(self, name: str) -> list[Any]:
        """The values that parameter `name` can take, also where it is not searched; of a range its two ends."""
        if name in self.fixed:
            return [self.fixed[name]]
        values = list(dict.fromkeys(v for each in self.parameters[name].ranges for v in each.values))
        elsewhere = self.defaults.get(name)
        return values if elsewhere is None or elsewhere in values else [*values, elsewhere]

    def examples(self, of: Sequence[str]) -> list[dict[str, Any]]:
        """Hyper-parameters of a trial for every combination of what these can be; of the others their first value."""
        examples = []
        for setting in self._settings(*of):
            drawn: dict[str, Any] = dict(self.fixed)
            for name in self.parameters:
                _, r = self.searched(name, drawn)
                values = r.values if r.active(drawn) else [self.defaults[name]]
                drawn[name] = setting[name] if setting.get(name) in values else values[0]
            examples.append(drawn)
        return examples

    def searched(self, name: str, drawn: Mapping[str, Any]) -> tuple[str, Range]:
        """The name of a parameter in the study, and its range, once `drawn` are drawn.

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
                key, r = self.searched(name, values)
                drawn[key], distributions[key] = params[name], r.distribution
        return drawn, distributions

    def suggest(self, trial: BaseTrial) -> dict[str, Any]:
        """All hyper-parameters of a trial. One whose condition does not hold has its default."""
        drawn: dict[str, Any] = dict(self.fixed)
        for name in self.parameters:
            key, r = self.searched(name, drawn)
            if not r.active(drawn):
                drawn[name] = self.defaults[name]
            elif r.choices is not None:
                drawn[name] = trial.suggest_categorical(key, r.choices)
            else:
                low, high = r.values
                suggest = trial.suggest_int if isinstance(low, int) else trial.suggest_float
                drawn[name] = suggest(key, low, high, log=r.log)
        return drawn
