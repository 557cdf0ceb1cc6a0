"""What the options of `sweep` become, and which values are refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from samples import demonstration
from typer.testing import CliRunner

from distilbench.cli import app
from distilbench.commands.run_folder import LONGEST_NAME, run_name
from distilbench.errors import InputError
from distilbench.selection import Selection
from distilbench.settings.commands import EvaluateSettings, ExportSettings, PlanSettings, StatusSettings
from distilbench.settings.option import ARGUMENT, Settings, extra_of, option_name
from distilbench.settings.sweep import SweepSettings


def settings(method: str = "mcr2", **given: Any) -> SweepSettings:
    return SweepSettings(store=Path("store"), method=method, **given)


@pytest.mark.parametrize(
    ("text", "methods"),
    [("mcr2", ("mcr2",)), ("mcr2,pca", ("mcr2", "pca")), (" pca , mcr2,pca", ("pca", "mcr2")), ("all", ())],
)
def test_methods(text: str, methods: tuple[str, ...]) -> None:
    assert settings(text).methods == methods


def test_values() -> None:
    given = {"searcher": "random", "stopping": "none", "space": Path("own")}
    found = settings(time_budget="1h30m", objectives="bytes, quality", **given)
    assert found.time_budget == 5400 and found.objectives == ("quality", "bytes")
    assert (found.searcher, found.stopping, found.space) == ("random", "none", "own")
    read = settings(prompt=("p ", "query=query: ", "document="))
    assert read.prompts == {"query": "query: ", "document": "", "": "p "}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"method": ","}, "--method ',': expected a method's name, several with commas between, or all"),
        ({"time_budget": "soon"}, "--time-budget soon: expected a time such as 90s, 30m, 2h or 1h30m"),
        ({"time_budget": "0m"}, "--time-budget 0m: expected a time"),
        ({"searcher": "asha"}, "--searcher asha: expected one of tpe, random"),
        ({"stopping": "hyperband"}, "--stopping hyperband: expected one of halving, asha, median, none"),
        ({"time_budget": -3}, "--time-budget -3: expected a time"),
        (
            {"objectives": "bytes"},
            "--objectives bytes: expected quality alone, or with some of bytes, latency and model_bytes, with commas between",
        ),
        ({"objectives": "quality,speed"}, "--objectives speed: expected quality alone, or with"),
        ({"trials": 0}, "--trials 0: expected at least 1"),
        ({"seed": 2**32}, "--seed 4294967296: expected at most 4294967295"),
        ({"trials": "many"}, "--trials many: expected a whole number"),
        ({"backend": "jax"}, "--backend jax: expected one of torch, bf16"),
        ({"quantise": "int8,int5"}, "--quantise int5: expected int8, int4, int3, int2, binary, or one of FAISS's"),
        ({"grow_to": "many"}, "--grow-to many: 'many' is no kind of node"),
        ({"storage": "bucket"}, "--storage bucket: not a URI"),
        ({"tempo": 3}, "tempo: no such setting; expected one of"),
    ],
)
def test_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as error:
        settings(**given)
    assert str(error.value).startswith(message)


def test_settings_are_changed_by_their_own_checks() -> None:
    found = settings(trials=3).but(trials=4, seed=2)
    assert (found.trials, found.seed, found.method) == (4, 2, ("mcr2",))
    with pytest.raises(InputError, match=r"^--trials 0: expected at least 1$"):
        found.but(trials=0)


def test_codes_and_lists_are_as_on_the_command_line() -> None:
    assert settings(quantise="binary,int8,binary").quantisations == ("binary", "int8")
    assert settings(quantise="none").quantisations == () and settings().quantisations == ("int8", "int4", "binary")
    assert settings(augment=" synonym , hpd").augment == ("synonym", "hpd")
    found = EvaluateSettings(model=("a", "b", "a"), store=Path("s"), dims="256,64", indexes="ivf:1024:5,flat")
    assert [m.name for m in found.models] == ["a", "b"] and found.dims == (256, 64)
    assert [spec.lists for spec in found.index_specs] == [(1024, 5), None]


def test_two_ways_at_once_are_refused() -> None:
    with pytest.raises(InputError, match=r"^--student: expected no --bytes, --latency or --dim with it$"):
        ExportSettings(run=("r",), to=Path("t"), student="x", dim=3)


# The command line


@pytest.mark.parametrize("command", ["sweep", "plan", "compare", "prepare", "evaluate", "export", "methods", "status"])
def test_every_field_is_an_option_with_a_help(command: str) -> None:
    group = typer.main.get_command(app)
    options = {name for p in group.commands[command].params for name in [*p.opts, *p.secondary_opts]}  # type: ignore[attr-defined]
    kinds = {"sweep": SweepSettings, "plan": PlanSettings, "export": ExportSettings, "status": StatusSettings}
    kind: type[Settings] = kinds.get(command, Settings)
    for name, field in kind.model_fields.items():
        assert field.description and field.description.endswith(".")
        assert extra_of(field)["panel"] == ARGUMENT or option_name(name, field) in options
    assert all(getattr(p, "help", None) for p in group.commands[command].params)  # type: ignore[attr-defined]


def test_help_begins_with_a_dozen_everyday_options() -> None:
    said = CliRunner().invoke(app, ["sweep", "--help"], env={"COLUMNS": "200"}).output
    first, data, *_ = said.split("─ Data ─")[0], said.split("─ Data ─")[1]
    assert 10 <= first.count("│ ") and all(
        option in first for option in ("--method", "--data", "--teacher", "--trials")
    )
    assert sum(line.lstrip("│* ").startswith("--") for line in first.splitlines()) <= 13
    assert "--max-pairs" in data and "─ Cluster and storage ─" in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sweep", "--method", "mcr2", "--backend", "jax"], "error: --backend jax: expected one of torch, bf16"),
        (["methods", "mcr3"], "error: --method mcr3: unknown method; expected one of contrastive"),
        (["export", "run", "--to", "x", "--bytes", "0"], "error: --bytes 0: expected at least 1"),
    ],
)
def test_bad_input_is_one_line_and_status_2(arguments: list[str], message: str) -> None:
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 2 and done.stderr.startswith(message) and done.stderr.count("\n") == 1


def test_a_run_is_bound_to_its_tasks_and_to_what_students_are_selected_by() -> None:
    from distilbench.commands.run_folder import run_config

    corpus = demonstration(20)
    assert run_config(SweepSettings(method="mcr2"), corpus)["tasks"] == ["retrieval", "sts"]
    found = run_config(SweepSettings(method="mcr2", tasks="sts,retrieval,classification"), corpus)
    assert found["tasks"] == ["classification", "retrieval", "sts"] and found["select"] == "sts"
    selected = replace(corpus, selection=Selection.parse("retrieval=0.5,fidelity=0.5"))
    found = run_config(SweepSettings(method="mcr2", tasks="classification"), selected)
    assert found["tasks"] == ["classification", "retrieval"] and found["select"] == "retrieval=0.5,fidelity=0.5"
    with pytest.raises(InputError, match="--select bleu: 'bleu' is no measure; expected one of sts, retrieval"):
        SweepSettings(method="mcr2", select="bleu")
    with pytest.raises(InputError, match="--tasks glue: expected some of sts, classification, retrieval, pairs"):
        SweepSettings(method="mcr2", tasks="sts,glue")


def test_a_run_may_have_a_name_in_any_script_and_of_any_length() -> None:
    names = ["запуск über 模型", "模" * 90, "模" * 91]
    folders = [run_name(name) for name in names]
    assert folders[0] == names[0] and len(set(folders)) == 3
    assert all(len(folder.encode()) <= LONGEST_NAME for folder in folders)
    with pytest.raises(InputError, match="expected a plain folder name"):
        run_name("a/b")
