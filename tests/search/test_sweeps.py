"""What `sweep` does beside searching: several methods, a time budget, extending, warm starts, other searchers."""

from __future__ import annotations

import csv
import io
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from run_command import SPACE, Command, make_sweep, told
from typer.testing import CliRunner

from distilbench.cli import app
from distilbench.commands.sweep import schedule_methods
from distilbench.commands.sweep_plan import claim_run, plan_method_runs, shares
from distilbench.errors import InputError
from distilbench.methods import get_method
from distilbench.progress.clock import Clock
from distilbench.records import TrialRecord, read_records
from distilbench.search.space_files import shipped_folder
from distilbench.search.study import load_study
from distilbench.settings.sweep import SweepSettings
from distilbench.stage_times import read_timings
from distilbench.trials import rows
from distilbench.trials.scoring import Candidate


def command(*arguments: str) -> str:
    done = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


# Several methods


@pytest.fixture
def spaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Search spaces of some methods that the small teacher can serve, in the working folder; the others' are shipped."""
    (tmp_path / "search_spaces").mkdir()
    (tmp_path / "search_spaces" / "mcr2.yaml").write_text(SPACE.format(steps=40))
    for method in ("pca", "random_projection"):
        text = f"method: {method}\nbudget: {{trials: 2, steps: 1, rungs: 1, confirm: {{seeds: 1}}}}\n"
        text += "parameters:\n  output_dim: {choices: [4, 8]}\n"
        (tmp_path / "search_spaces" / f"{method}.yaml").write_text(text)
    monkeypatch.chdir(tmp_path)


def settings(data: Path | None, encoder: Path, store: Path, **changes: Any) -> SweepSettings:
    given: dict[str, Any] = {
        "method": "all",
        "data": str(data) if data else None,
        "teacher": str(encoder),
        "store": store,
    }
    return SweepSettings(**{**given, "student": "layers:0,2", **changes})


def test_all_leaves_out_what_the_data_cannot_serve_and_says_why(
    tmp_path: Path, data_folder: Path, encoder_folder: Path, spaces: None
) -> None:
    from distilbench.methods import method_names

    console = Console(record=True, width=400, file=io.StringIO())
    members, run = plan_method_runs(settings(data_folder, encoder_folder, tmp_path), console)
    printed = console.export_text()
    swept = [member.space.method for member in members]
    left_out = [line.split(" is left out: ") for line in printed.splitlines() if " is left out: " in line]
    assert {name for name, _ in left_out} | set(swept) == set(method_names())
    assert not {name for name, _ in left_out} & set(swept)
    assert {"mcr2", "pca", "random_projection"} <= set(swept)
    reasons = dict(left_out)
    assert "dse" in reasons and "STSB" in reasons["dse"]  # its space for real data has that task
    dimensions = {member.space.method: member.space.dimensions for member in members}
    assert dimensions["whitening"] == [32] and dimensions["pca"] == [4, 8]  # the teacher has no more; the user's own
    assert all(reason.strip() for reason in reasons.values())
    assert {member.run for member in members} == {run / name for name in swept}
    # One corpus for all: rows of one leaderboard can be compared.
    assert len({member.corpus.fingerprint for member in members}) == 1


def test_several_methods_that_are_asked_for_have_to_fit(
    tmp_path: Path, data_folder: Path, encoder_folder: Path, spaces: None
) -> None:
    quiet = Console(quiet=True)
    with pytest.raises(InputError, match="STSB"):
        plan_method_runs(settings(data_folder, encoder_folder, tmp_path, method=("pca", "dse")), quiet)
    space = tmp_path / "space.yaml"
    for option in ("space", "warm_start"):
        given = {"method": ("pca", "mcr2"), option: space if option == "space" else str(space)}
        with pytest.raises(InputError, match=f"^--{option.replace('_', '-')} .*: it is of one method"):
            plan_method_runs(settings(data_folder, encoder_folder, tmp_path, **given), quiet)


def test_the_whole_question_is_asked_of_all_methods_of_the_front_heads_first(
    tmp_path: Path, narrow_encoder_folder: Path
) -> None:
    front = shipped_folder() / "front"
    asked = {"space": front, "student": "auto", "objectives": ("quality", "latency", "bytes")}
    members, _ = plan_method_runs(settings(None, narrow_encoder_folder, tmp_path, **asked), Console(quiet=True))
    swept = {member.space.method: member.space for member in members}
    assert swept.keys() == {path.stem for path in front.glob("*.yaml")}
    heads = [not get_method(method).trains_encoder for method in swept]
    assert heads == sorted(heads, reverse=True) and any(heads) and not all(heads)
    # The teacher has one layer and 16 dimensions, and no more is asked of it.
    assert swept["hpd"].students == ["static", "static:corpus", "auto:1", "auto:1:corpus"] and swept[
        "hpd"
    ].dimensions == [16]
    assert any("auto:3" in note for note in swept["hpd"].notes)
    assert all(max(space.dimensions) <= 16 for space in swept.values())


@pytest.mark.parametrize(("first", "later"), [("10m", None), ("10m", "1h"), (None, "10m")])
def test_another_time_budget_leaves_a_run_the_layers_that_it_began_with(
    tmp_path: Path, data_folder: Path, encoder_folder: Path, spaces: None, first: str | None, later: str | None
) -> None:
    """Layers that are ranked in one round may be others than those of two, and trials go on from their checkpoints."""
    for budget in (first, later):
        given = settings(data_folder, encoder_folder, tmp_path, method=("pca", "mcr2"), time_budget=budget, name="a")
        members, _ = plan_method_runs(given, Console(quiet=True))
        assert [member.quick for member in members] == [first == "10m"] * 2
        for member in members:
            claim_run(given, member, Console(quiet=True))
    (other, _), _ = plan_method_runs(given.model_copy(update={"name": "b"}), Console(quiet=True))
    assert other.quick == (later == "10m")


def test_methods_have_their_turns_and_those_that_time_cut_off_go_on(
    tmp_path: Path, data_folder: Path, encoder_folder: Path, spaces: None
) -> None:
    given = settings(data_folder, encoder_folder, tmp_path, method=("pca", "mcr2", "random_projection"))
    members, _ = plan_method_runs(given, Console(quiet=True))
    turns = []
    for member, share, turn in schedule_methods(members, Clock(900)):
        member.cut_off = turn != "goes on" and member.space.method == "mcr2"
        member.unconfirmed = turn != "goes on" and member.space.method == "random_projection"
        turns.append((member.space.method, round(share.end - time.time(), -1), turn))
    assert turns == [
        ("pca", 300, "1 of 3"),
        ("mcr2", 450, "2 of 3"),
        ("random_projection", 900, "3 of 3"),
        ("random_projection", 450, "goes on"),  # of which nothing but confirmations is missing
        ("mcr2", 900, "goes on"),
    ]
    members[1].cut_off = True
    late = Clock(900, time.time() - 850)
    assert [turn for *_, turn in schedule_methods(members, late)] == ["1 of 3", "2 of 3", "3 of 3"]
    assert [turn for *_, turn in schedule_methods(members[1:2], Clock(900))] == [""], "one method ends with what it has"
    assert [turn for *_, turn in schedule_methods(members, Clock(None))] == ["1 of 3", "2 of 3", "3 of 3"]


def test_trials_are_shared_among_the_methods(
    tmp_path: Path, data_folder: Path, encoder_folder: Path, spaces: None
) -> None:
    given = settings(data_folder, encoder_folder, tmp_path, method=("pca", "random_projection"))
    members, _ = plan_method_runs(given, Console(quiet=True))
    both = [member.space for member in members]
    assert shares(None, both) == [2, 2]  # as the search spaces say
    assert shares(7, both) == [4, 3]
    with pytest.raises(
        InputError, match="--trials 1: 2 methods share them, and each needs one; expected --trials 2 or more"
    ):
        plan_method_runs(given.model_copy(update={"trials": 1}), Console(quiet=True))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_methods_have_a_study_each_and_one_leaderboard(
    tmp_path: Path, data_folder: Path, encoder_folder: Path, store: Path, cluster: None, spaces: None
) -> None:
    sweep = Command("sweep", tmp_path, data_folder, encoder_folder, store, "--method", "random_projection,pca")
    out = sweep.done("--trials", "3")
    assert "random_projection (1 of 2)" in out and "pca (2 of 2)" in out
    for method, trials in (("random_projection", 2), ("pca", 1)):
        study = load_study(sweep.run / method)
        assert len(study.trials) == trials and study.study_name == f"r/{method}"
        records = [r for r in read_records(sweep.run / method / "trials.jsonl") if isinstance(r, TrialRecord)]
        assert {r.run for r in records} == {f"r/{method}"} and len(records) == trials
        assert {r.method for r in records} == {method}
    with (tmp_path / "reports" / "r" / "leaderboard.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["code"] == "float32"]
    assert len({row["corpus_fingerprint"] for row in rows}) == 1
    counts = Counter((row["role"], row["method"]) for row in rows)
    assert counts["teacher", "teacher"] == 1
    assert counts["student", "random_projection"] == 2 and counts["student", "pca"] == 1
    assert counts["baseline", "pca"] == counts["baseline", "random_projection"] == 2
    assert "r/pca: no student of bytes per vector 32: none of its trials was completed." in sweep.page()
    assert [t.stage for t in read_timings(sweep.run) if t.stage.islower()] == ["start", "prepare", "report"]
    stages = ["costs", "teacher", "search", "confirm", "score", "references"]
    assert [t.stage for t in read_timings(sweep.run / "pca")] == stages
    planned = tmp_path / "plan.json"
    told_plan = command("plan", "--from", str(sweep.run), "--trials", "400", "--price", "2", "--json", str(planned))
    assert "search (pca)" in told_plan and json.loads(planned.read_text())["seconds"] > 0
    # The folder of the whole stands for the runs in it.
    command("report", str(sweep.run), "--out", str(tmp_path / "again"))
    page = (tmp_path / "again" / "index.html").read_text()
    assert page.count('"role":"teacher"') == sweep.page().count('"role":"teacher"') > 0
    found = json.loads(best_json(tmp_path, sweep.run))
    # The teacher's own codes and the baselines take part, which are made when they are exported.
    assert found["student"]["method"] in ("pca", "random_projection", "teacher")
    assert found["model"] is None or Path(found["model"]).is_dir()
    assert found["export"].startswith("distilbench export") and str(sweep.run) in found["export"]
    before = [*sweep.run.rglob("*.jsonl")]
    content = [path.read_bytes() for path in before]
    sweep.done("--trials", "3")
    assert [path.read_bytes() for path in before] == content


def best_json(folder: Path, run: Path) -> str:
    command("best", str(run), "--json", str(folder / "best.json"))
    return (folder / "best.json").read_text()


# A time budget


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_time_budget_ends_with_what_it_has_and_the_rest_comes_later(
    tmp_path: Path, data_folder: Path, encoder_folder: Path, store: Path, cluster: None
) -> None:
    text = SPACE.format(steps=1000).replace("trials: 6", "trials: 8, stopping: none").replace("seeds: 2", "seeds: 1")
    sweep = make_sweep(tmp_path, data_folder, encoder_folder, store, 0, space=text)
    out = sweep.done("--time-budget", "16s")
    ended = len(sweep.trials())
    assert ended < 8
    note = f"time was over after {ended} of 8 trials."
    assert note in out and note in sweep.page()
    students = [r for r in sweep.scores() if r.role == "student"]
    interrupted = [r for r in students if r.configuration]
    assert all("interrupted after step" in r.configuration for r in interrupted)
    kept = told(sweep.trials())
    sweep.done()
    assert len(sweep.trials()) == len(sweep.study().trials) == 8
    assert all(t.state.name == "COMPLETE" for t in sweep.study().trials)
    now = told(sweep.trials())
    assert all(now[key] == record for key, record in kept.items())
    assert "time was over" not in sweep.page() and "interrupted after" not in sweep.page()
    chosen = json.loads((sweep.run / "confirmed.json").read_text())
    best = {
        str(4 * d): max((r for r in sweep.trials() if r.dim == d), key=lambda r: (r.objective or 0, -r.number))
        for d in (4, 8)
    }
    assert {d: own[0]["trial"] for d, own in chosen.items()} == {d: r.number for d, r in best.items()}
    assert sweep.leftovers() == []


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_where_baselines_take_long_the_time_is_the_students(
    tmp_path: Path, data_folder: Path, encoder_folder: Path, store: Path, cluster: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = SPACE.format(steps=8).replace("  lr:", "  bits: {choices: [8, 4]}\n  lr:").replace("trials: 6", "trials: 4")
    sweep = make_sweep(tmp_path, data_folder, encoder_folder, store, 0, "--quantise", "none", space=text)
    now, late_s, scored = time.time, [0.0], rows.score_candidate

    def slowly(candidate: Candidate, *arguments: Any) -> Any:
        late_s[0] += 1300 if candidate.role == "baseline" else 0
        return scored(candidate, *arguments)

    monkeypatch.setattr(rows, "score_candidate", slowly)
    monkeypatch.setattr(time, "time", lambda: now() + late_s[0])
    out = sweep.done("--time-budget", "1h")
    assert len(sweep.trials()) == 4 and all(t.state in ("COMPLETE", "PRUNED") for t in sweep.trials())
    note = "time was over before all baselines were scored"
    assert note in out and note in sweep.page()
    students = {r.bytes_per_vector for r in sweep.scores() if r.role == "student"}
    assert students >= {2, 4, 8}, "every number of bytes has one"
    assert [(r.method, r.dim) for r in sweep.scores() if r.role == "baseline"][:2] == [("pca", 4), ("pca", 8)]
    assert not any(r.label.startswith("FAISS") for r in sweep.scores())
    sweep.done()
    assert any(r.label.startswith("FAISS") for r in sweep.scores()) and note not in sweep.page()
