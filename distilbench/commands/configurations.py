"""Files of named configurations: rows of a paper's tables, or a user's own, to be trained without a search.

paper: HPD (ACL Findings 2022)
rows:
  - name: HPD-MiniLM-H128
    table: "1, 2 and 4"
    teacher: sentence-transformers/nli-mpnet-base-v2
    student: nreimers/MiniLM-L6-H384-uncased
    method: hpd
    params: {output_dim: 128, lr: 1e-4, batch_size: 256}
    published: {STS average: 81.20}
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from distilbench.encoders.encoder import EncoderSpec
from distilbench.errors import InputError, naming
from distilbench.methods import get_method, method_names
from distilbench.search.space_files import NATIVE, check_value, first_error, read_yaml


class Configuration(BaseModel):
    """One named row: a method and all its hyper-parameters."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(min_length=1)
    method: str
    params: dict[str, Any]
    """Defaults of the method are left out in the file and filled in here."""
    table: str = ""
    """The source's table, figure or section."""
    published: dict[str, float] = Field(default_factory=dict)
    """Scores that the source reports for it, with its own teacher, student and data."""
    note: str = ""
    """A note on the row for its reader."""
    teacher: str = ""
    student: str = ""
    """The encoders of the source, unless `--teacher` and `--student` say otherwise; "" where any will do."""

    def shown_name(self, teacher: str, student: str) -> str:
        """The row's name, marked where it is trained with another teacher or student than the source's."""
        same = self.teacher in ("", teacher) and self.student in ("", student)
        return self.name if same else f"{self.name} (other encoders)"

    def possible(self, name: str) -> list[Any]:
        """The one value of a parameter, as `SearchSpace.possible` gives the values of a searched one."""
        return [self.params[name]]


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    paper: str = ""
    sizes: dict[str, str] = Field(default_factory=dict)
    rows: list[dict[str, Any]] = Field(min_length=1)
    references: list[dict[str, Any]] = Field(default_factory=list)
    """With `sizes` for benchmarks/paper_tables.py alone: published rows that nothing here trains."""


def read_configurations(files: Sequence[Path], names: Sequence[str]) -> list[tuple[Path, Configuration]]:
    """The configurations called `names` (all, when there are none), as they are written, each with its file."""
    by_name: dict[str, tuple[Path, Configuration]] = {}
    for path in files:
        for row in _rows(path):
            if row.name in by_name:
                raise InputError(f"{path}: row {row.name!r}: the name comes twice (also in {by_name[row.name][0]})")
            by_name[row.name] = (path, row)
    for name in names:
        if name not in by_name:
            raise InputError(f"--row {name}: no such row; expected one of {', '.join(map(repr, by_name))}")
    return [by_name[name] for name in dict.fromkeys(names or by_name)]


def _rows(path: Path) -> list[Configuration]:
    where, rows = str(path), []
    try:
        for number, row in enumerate(_File.model_validate(read_yaml(path)).rows, start=1):
            where = f"{path}: row {row.get('name', number)!r}"
            rows.append(Configuration.model_validate(row))
    except ValidationError as error:
        raise InputError(first_error(where, error)) from None
    return rows


def chosen_encoder(rows: Sequence[tuple[Path, Configuration]], which: str, from_option: str, default: str) -> str:
    """The teacher or student (`which`) to train all rows with: the one `from_option`, else ("") the one that they name."""
    named = dict.fromkeys(name for _, row in rows if (name := str(getattr(row, which))))
    if not from_option and len(named) > 1:
        raise InputError(
            f"--{which}: the rows name {len(named)} of them ({', '.join(named)}); expected --{which} for all of them, or "
            f"--row for those with the same"
        )
    return from_option or next(iter(named), default)


def complete(path: Path, row: Configuration, teacher: EncoderSpec, student: str) -> Configuration:
    """The row with the method's defaults and `native` widths filled in."""
    with naming(f"{path}: row {row.name!r}"):
        if row.method not in method_names():
            raise InputError(f"method is {row.method!r}; expected one of {', '.join(method_names())}")
        method = get_method(row.method)
        fields = {field.alias or name: field for name, field in method.params_type.model_fields.items()}
        native = {n: method.native_dim(teacher, student) for n, value in row.params.items() if value == NATIVE}
        filled = {**row.params, **native}
        if "student" in filled:
            raise InputError(
                f"student is {filled['student']!r} among the params; expected it beside them, or --student"
            )
        for name, value in filled.items():
            if name not in fields:
                raise InputError(f"{name}: {row.method} has no such parameter; it has {', '.join(sorted(fields))}")
            check_value(name, "the value", value, fields[name])
        for name, field in fields.items():
            if field.is_required() and name not in filled:
                raise InputError(f"{name}: not given; {row.method} needs it")
    params = method.params_type.model_validate(filled).model_dump(mode="json", by_alias=True)
    return row.model_copy(update={"params": params})
