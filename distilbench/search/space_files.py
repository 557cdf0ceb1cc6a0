"""Search spaces: where their YAML files are found, and how they are read and checked before anything runs.

docs/methods.md has an example, and what each key means.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import yaml
from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from distilbench.choices import BUDGETS
from distilbench.encoders.student import aliases
from distilbench.errors import InputError, naming
from distilbench.search.space import GIVEN, Range, SearchSpace, SpaceContent
from distilbench.training.params import Params

FOLDER = Path("search_spaces")
STATIC = "static"
"""The folder of spaces for static students, whose learning rates and steps are ten times those of transformers."""
_PACKAGE = Path(__file__).resolve().parents[1]


class SpaceFile(NamedTuple):
    """A search space's file; `shipped`: it is in one of the folders that come with the package."""

    path: Path
    shipped: bool


def shipped_folder() -> Path:
    """`search_spaces` of this checkout, or what an installed package has of it."""
    top = _PACKAGE.parent / FOLDER
    return top if (top / BUDGETS[0]).is_dir() else _PACKAGE / FOLDER


def space_file(method: str, named: str | None, *, data: bool, static: bool = False) -> SpaceFile:
    """The search space of a method.

    `named` (`--space`) is a file, a folder with METHOD.yaml in it, or the name of one of the package's folders. None is
    `search_spaces/METHOD.yaml` of the working folder, the user's own; else the package's `real` where there are `data`, and
    `small` without. For a static student the package's `static` takes the place of its budgets, if the method is there.
    """
    file, shipped = f"{method}.yaml", shipped_folder()
    if named is None and (FOLDER / file).exists():
        return SpaceFile(FOLDER / file, shipped=False)
    name = named or ("real" if data else "small")
    if static and name in BUDGETS and (shipped / STATIC / file).exists():
        return SpaceFile(shipped / STATIC / file, shipped=True)
    folder = shipped / name if Path(name).name == name and (shipped / name).is_dir() else Path(name)
    if not folder.is_dir():
        if not folder.exists() and not folder.suffix:
            known = ", ".join(sorted(path.name for path in shipped.iterdir() if path.is_dir()))
            raise InputError(f"--space {named}: no such file or folder; expected one of them, or one of {known}")
        return SpaceFile(folder, shipped=False)
    if not (folder / file).exists():
        if named is None:
            raise InputError(
                f"no search space: looked for {FOLDER / file} and {folder / file}; expected one there or --space FILE"
            )
        raise InputError(f"--space {named}: expected {file} in this folder")
    return SpaceFile(folder / file, shipped=folder.resolve().parent == shipped.resolve())


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
    """The content of a YAML file."""
    try:
        return yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)  # noqa: S506 -- derived from SafeLoader
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not YAML: {' '.join(str(error).split())}") from None


NATIVE = "native"
"""An output dimension of this name is the width that the student has by itself."""


def load_space(
    path: Path, method: str, params: type[Params], native: int | Callable[[Sequence[str]], int]
) -> SearchSpace:
    """Read and check a search space; an error names the file, the parameter, the value and what was expected.

    `native` is the output dimension of that name, or says it for the students that the space names.
    """
    try:
        file = _with_native(SpaceContent.model_validate(read_yaml(path)), native)
    except ValidationError as error:
        raise InputError(first_error(path, error)) from None
    fields = {field.alias or name: field for name, field in params.model_fields.items()}
    with naming(path):
        if file.method != method:
            raise InputError(f"method: it is a space of {file.method!r}; expected {method!r}")
        _check_names(file, fields)
        for name, value in file.fixed.items():
            check_value(name, "fixed", value, fields[name])
        drawn_before = set(file.fixed)
        for name in file.parameters:
            _check_parameter(file, name, fields, drawn_before)
            drawn_before.add(name)
        for student in file.budget.student_steps or ():
            _check_named(file, "budget.student_steps", student)
        for number, setting in enumerate(file.enqueue, start=1):
            check_setting(f"enqueue, setting {number}", setting, file.parameters, fields)
    defaults = {n: f.default for n, f in fields.items() if not f.is_required()}
    fixed = {n: value for n, value in defaults.items() if n not in file.parameters} | file.fixed
    conditional = {n: value for n, value in defaults.items() if n in file.parameters and file.parameters[n].when}
    as_json = TypeAdapter(dict[str, Any])
    return SearchSpace(
        **{
            **dict(file),
            "parameters": {name: _typed(r, fields[name]) for name, r in file.parameters.items()},
            "fixed": as_json.dump_python(fixed, mode="json"),
            "defaults": as_json.dump_python(conditional, mode="json"),
        }
    )


def _typed(r: Range, field: FieldInfo) -> Range:
    own = {student: _typed(one, field) for student, one in (r.students or {}).items()}
    whole = field.annotation is int and r.choices is None
    ends = {"low": int(r.low or 0), "high": int(r.high or 0)} if whole else {}
    return r.model_copy(update={**ends, "students": own or None})


def _with_native(file: SpaceContent, native: int | Callable[[Sequence[str]], int]) -> SpaceContent:
    """The file with a number for `native`."""
    searched, fixed = file.parameters.get("output_dim"), file.fixed.get("output_dim")
    choices = (searched.choices or ()) if searched else ()
    if NATIVE not in (fixed, *choices, *(setting.get("output_dim") for setting in file.enqueue)):
        return file
    width = native if isinstance(native, int) else native(file.students)

    def resolved(setting: dict[str, Any]) -> dict[str, Any]:
        return {**setting, "output_dim": width} if setting.get("output_dim") == NATIVE else setting

    parameters = dict(file.parameters)
    if searched is not None and NATIVE in choices:
        widths = tuple(width if c == NATIVE else c for c in choices if c == NATIVE or c != width)
        parameters["output_dim"] = searched.model_copy(update={"choices": widths})
    enqueue = tuple(resolved(setting) for setting in file.enqueue)
    return file.model_copy(update={"parameters": parameters, "fixed": resolved(file.fixed), "enqueue": enqueue})


def _check_names(file: SpaceContent, fields: Mapping[str, FieldInfo]) -> None:
    """Check that every parameter is the method's, and each is given once."""
    for name in [*file.parameters, *file.fixed]:
        if name not in fields:
            raise InputError(f"{name}: {file.method} has no such parameter; it has {', '.join(sorted(fields))}")
    both = sorted(file.parameters.keys() & file.fixed.keys())
    if both:
        raise InputError(f"{both[0]}: both searched and fixed; expected one of the two")
    missing = [n for n, f in fields.items() if f.is_required() and n not in file.parameters and n not in file.fixed]
    if missing:
        raise InputError(f"{missing[0]}: neither searched nor fixed; {file.method} needs it")
    for name in GIVEN & file.parameters.keys():
        r = file.parameters[name]
        if r.choices is None or r.when or r.students:
            raise InputError(
                f"{name}: low/high, when or students; expected choices alone: every trial has one, and the best of each is "
                "reported"
            )


def _check_range(name: str, r: Range, field: FieldInfo) -> None:
    """Check choices, or low and high, against the method's own field."""
    if r.choices is not None:
        for choice in r.choices:
            check_value(name, "choices", choice, field)
        return
    if field.annotation not in (int, float):
        raise InputError(f"{name}: low/high on a parameter that is not a number; expected choices")
    for key, end in (("low", r.low or 0.0), ("high", r.high or 0.0)):
        check_value(name, key, int(end) if field.annotation is int and end.is_integer() else end, field)


def _check_parameter(
    file: SpaceContent, name: str, fields: Mapping[str, FieldInfo], drawn_before: Container[str]
) -> None:
    """Check a searched parameter's range, those of single students, and its condition."""
    r = file.parameters[name]
    _check_range(name, r, fields[name])
    for student, own in (r.students or {}).items():
        if "student" not in drawn_before:
            raise InputError(f"{name}: students: expected `student` before it, or under fixed")
        _check_named(file, f"{name}: students", student)
        _check_range(f"{name}: students: {student}", own, fields[name])
    for other, values in (r.when or {}).items():
        if other not in drawn_before:
            raise InputError(f"{name}: when names {other}; expected a parameter that stands before it, or a fixed one")
        choices = file.parameters[other].choices if other in file.parameters else None
        known = [n for c in choices or () for n in (aliases(str(c)) if other == "student" else (c,))]
        for value in values if isinstance(values, tuple) else (values,):
            check_value(name, f"when {other}", value, fields[other])
            if choices is not None and value not in known:
                raise InputError(f"{name}: when {other} is {value!r}; expected one of its choices {list(choices)}")
    if r.when and fields[name].is_required():
        raise InputError(f"{name}: when, but the method has no default for it elsewhere")


def _check_named(file: SpaceContent, where: str, student: str) -> None:
    if not any(student in aliases(one) for one in file.students):
        raise InputError(f"{where}: {student!r}; expected one of the students {file.students}")


def check_setting(where: str, setting: Any, parameters: Mapping[str, Range], fields: Mapping[str, FieldInfo]) -> None:
    """Check one setting to try first: searched parameters, each with a value that the space can give it."""
    if not isinstance(setting, dict) or not setting:
        raise InputError(f"{where}: it is {setting!r}; expected parameters with values")
    for name, value in setting.items():
        if name not in parameters:
            raise InputError(f"{where}: {name} is not searched; expected some of {', '.join(parameters)}")
        check_value(name, where, value, fields[name])
        r = parameters[name]
        if any(one.holds(value) for one in r.ranges):
            continue
        if r.choices is not None:
            raise InputError(f"{where}: {name} is {value!r}; expected one of the choices {list(r.choices)}")
        raise InputError(f"{where}: {name} is {value!r}; expected from {r.low:g} to {r.high:g}")


def check_value(name: str, key: str, value: Any, field: FieldInfo) -> None:
    """Check a value from a file against the method's own field: type and range."""
    # The method's own field, constraints included: one definition serves the method and its search space.
    kind: Any = Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation
    adapter: TypeAdapter[Any] = TypeAdapter(kind, config=ConfigDict(allow_inf_nan=False))
    try:
        # From a file a number must be a number, but lists stand for tuples.
        adapter.validate_python(tuple(value) if isinstance(value, list) else value, strict=True)
    except ValidationError as error:
        raise InputError(f"{name}: {key} is {value!r}: {error.errors()[0]['msg'].lower()}") from None


def first_error(path: Path | str, error: ValidationError) -> str:
    """The first of pydantic's errors in one line: file, place, what is wrong, the value."""
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"]) or "the file"
    if first["type"] == "value_error":  # of a check of ours, which names the value
        return f"{path}: {where}: {first['ctx']['error']}"
    if first["type"] == "model_type":  # pydantic's words name a class of ours
        return f"{path}: {where}: expected keys with values (got {str(first['input'])[:80]!r})"
    return f"{path}: {where}: {first['msg'].lower()} (got {str(first['input'])[:80]!r})"
