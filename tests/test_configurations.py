"""Files of configurations: what a row is completed with, and one message for each kind of bad row."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from distilbench.commands.compare import Configuration, chosen_teacher, complete, read_configurations
from distilbench.encoders.encoder import EncoderSpec
from distilbench.errors import InputError
from distilbench.methods import get_method, method_names

ROOT = Path(__file__).parents[1]

MCR2: dict[str, Any] = {"output_dim": 8, "lambda": 2000, "clusters": 4, "lr": 0.001, "batch_size": 16}
IBKD: dict[str, Any] = {"output_dim": 8, "lr": 0.001, "batch_size": 16}


def write(path: Path, *rows: dict[str, Any] | str, **more: Any) -> Path:
    path.write_text(yaml.safe_dump({"rows": list(rows), **more}, sort_keys=False))
    return path


def row(name: str = "A", method: str = "mcr2", params: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"name": name, "method": method, "params": MCR2 if params is None else params, **more}


def load(folder: Path, encoder: Path, *rows: dict[str, Any], names: tuple[str, ...] = ()) -> list[Configuration]:
    written = read_configurations([write(folder / "rows.yaml", *rows)], names)
    return [complete(path, found, EncoderSpec(str(encoder)), "half") for path, found in written]


def test_a_row_is_completed_with_the_methods_defaults(tmp_path: Path, encoder_folder: Path) -> None:
    [found] = load(tmp_path, encoder_folder, row(table="2", published={"STSB": 78}, note="of the released code"))
    assert found.params.items() >= MCR2.items()
    fields = get_method("mcr2").params_type.model_fields
    assert found.params.keys() == {field.alias or name for name, field in fields.items()}
    assert found.params["betas"] == [0.9, 0.99] and found.params["head"] == "elu"
    assert found.possible("clusters") == [4]
    assert (found.table, found.published, found.note) == ("2", {"STSB": 78.0}, "of the released code")
    get_method("mcr2").params_type.model_validate(found.params)


def test_rows_are_chosen_by_name_each_once(tmp_path: Path, encoder_folder: Path) -> None:
    rows = [row("A"), row("B"), row("C")]
    assert [r.name for r in load(tmp_path, encoder_folder, *rows)] == ["A", "B", "C"]
    assert [r.name for r in load(tmp_path, encoder_folder, *rows, names=("C", "A", "C"))] == ["C", "A"]


def test_several_files_are_one_list(tmp_path: Path) -> None:
    files = [write(tmp_path / "one.yaml", row("A"), paper="X"), write(tmp_path / "two.yaml", row("B"))]
    assert [(path.name, found.name) for path, found in read_configurations(files, ())] == [
        ("one.yaml", "A"),
        ("two.yaml", "B"),
    ]
    twice = write(tmp_path / "three.yaml", row("A"))
    with pytest.raises(InputError, match=r"three\.yaml: row 'A': the name comes twice \(also in .*one\.yaml\)"):
        read_configurations([*files, twice], ())


@pytest.mark.parametrize(
    ("named", "given", "wanted"),
    [
        ([], "", "standard"),
        (["", ""], "", "standard"),
        (["x", "", "x"], "", "x"),
        (["x", "y"], "z", "z"),
        (["x"], "z", "z"),
    ],
)
def test_the_teacher_is_that_of_the_rows_unless_one_is_given(named: list[str], given: str, wanted: str) -> None:
    rows = [(Path("f"), Configuration(**row(str(i), teacher=name))) for i, name in enumerate(named)]
    assert chosen_teacher(rows, given, "standard") == wanted


@pytest.mark.parametrize(
    ("given", "method", "params", "wanted"),
    [("", "ibkd", IBKD, "static"), ("teacher", "ibkd", IBKD, "half"), ("", "mcr2", MCR2, "half")],
)
def test_a_row_has_its_own_student_unless_one_is_given(
    tmp_path: Path, encoder_folder: Path, given: str, method: str, params: dict[str, Any], wanted: str
) -> None:
    found = Configuration(**row("A", method, params, student="static"))
    done = complete(tmp_path, found, EncoderSpec(str(encoder_folder)), given)
    assert done.trained_student("half") == wanted


# Bad rows


def changed(base: dict[str, Any], **params: Any) -> dict[str, Any]:
    """Parameters replaced; None removes one."""
    return {name: value for name, value in {**base, **params}.items() if value is not None}


BAD: list[tuple[dict[str, Any], str]] = [
    # unknown method
    (row(method="mcr3"), r"row 'A': method is 'mcr3'; expected one of .*hpd, .*mcr2"),
    # unknown parameter
    (row(params=changed(MCR2, lamda=3)), r"row 'A': lamda: mcr2 has no such parameter; it has .*lambda"),
    # missing parameter
    (row(params=changed(MCR2, lr=None)), r"row 'A': lr: not given; mcr2 needs it"),
    # wrong type
    (row(params=changed(MCR2, lr="fast")), r"row 'A': lr: the value is 'fast': .*number"),
    (row(params=changed(MCR2, clusters=2.5)), r"row 'A': clusters: the value is 2\.5: .*integer"),
    (row(params=changed(MCR2, head="gelu")), r"row 'A': head: the value is 'gelu': .*'elu' or 'residual'"),
    # out of range
    (row("T", "ibkd", changed(IBKD, tau=0)), r"row 'T': tau: the value is 0: .*greater than 0"),
    (row(params=changed(MCR2, lr=0)), r"row 'A': lr: the value is 0: .*greater than 0"),
    (row(params=changed(MCR2, eps2=float("inf"))), r"row 'A': eps2: the value is inf: .*finite"),
    # a row that is none
    (row(""), r"row '': name: .*at least 1 character"),
    ({"method": "mcr2", "params": MCR2}, r"row 2: name: field required"),
    (row(7), r"row 7: name: .*string \(got '7'\)"),  # type: ignore[arg-type]
    ({"name": "A", "params": MCR2}, r"row 'A': method: field required"),
    ({"name": "A", "method": "mcr2"}, r"row 'A': params: field required"),
    (row(parameters=MCR2), r"row 'A': parameters: .*not permitted"),
    # two of one name
    (row("good"), r"row 'good': the name comes twice \(also in .*rows\.yaml\)"),
]


@pytest.mark.parametrize(("bad", "message"), BAD)
def test_a_bad_row_names_file_row_parameter_and_value(
    tmp_path: Path, encoder_folder: Path, bad: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError) as error:
        load(tmp_path, encoder_folder, row("good"), bad)
    assert re.match(rf"{re.escape(str(tmp_path))}/rows\.yaml: {message}", str(error.value)), str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"the file: .*\(got 'None'\)"),
        ("rows: []", r"rows: .*at least 1 item"),
        ("rows: [all]", r"rows\.0: .*\(got 'all'\)"),
        ("paper: X", r"rows: field required"),
        ("rows: [{name: A, method: mcr2, params: {lr: 1, lr: 0.1}}]", r"not YAML: lr is given twice"),
        ("rows: [!!python/object/apply:os.system ['touch pwned']]", r"not YAML: .*python/object"),
        ("rows: [{name: A, method: mcr2, params: {}}]\nseeds: 3", r"seeds: .*not permitted"),
    ],
)
def test_a_file_that_holds_no_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.yaml").write_text(text)
    with pytest.raises(InputError, match=rf"rows\.yaml: {message}") as error:
        read_configurations([tmp_path / "rows.yaml"], ())
    assert "\n" not in str(error.value)
    assert not (tmp_path / "pwned").exists()


def test_an_unknown_row_names_the_known_ones(tmp_path: Path, encoder_folder: Path) -> None:
    with pytest.raises(InputError, match=r"^--row X: no such row; expected one of 'A', 'B'$"):
        load(tmp_path, encoder_folder, row("A"), row("B"), names=("A", "X"))


# The shipped files


SHIPPED = [
    path
    for folder in ("papers", "studies")
    for path in sorted((ROOT / "search_spaces" / folder).glob("*.yaml"))
    if re.search("^rows:", path.read_text(), re.MULTILINE)  # the others are search spaces
]


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: p.name)
def test_every_shipped_row_is_valid_for_its_method(path: Path, encoder_folder: Path) -> None:
    for file, found in read_configurations([path], ()):
        assert found.method in method_names()
        complete(file, found, EncoderSpec(str(encoder_folder)), "half")
