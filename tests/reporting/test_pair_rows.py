"""Pairs on the leaderboard: a student's queries among its teacher's documents; named, compared, chosen on dev, told."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

from distilbench.records import Score, ScoreRecord, append_records
from distilbench.reporting.best import best_of_runs
from distilbench.reporting.board import Leaderboard, leaderboard, notices, rivals
from distilbench.reporting.board_figures import board_plots, compute_quality
from distilbench.reporting.choice import ServingBudget, answer
from distilbench.reporting.exports import best_students, terminal_summary
from distilbench.reporting.frame import board_frame
from distilbench.reporting.lines import encoder_lines
from distilbench.reporting.page import write_report
from distilbench.reporting.runs import latest_scores
from distilbench.reporting.serving import serving_costs

DOCUMENTS = "all-MiniLM-L6-v2, its PCA"
BY_TEACHER = "retrieval,documents=teacher"


def found(split: str, value: float, **of: str) -> Score:
    fields = {"task": "retrieval", "set": "own", "metric": "ndcg@10"} | of
    return Score(split=split, variant="all", value=value, n=400, **fields)


def encoder(make_score: Any, name: str, ndcg: float | None, **changes: Any) -> ScoreRecord:
    """A row whose searches have nDCG@10 `ndcg` on test and 1 more on dev (None: there is no set to search)."""
    fields = {
        "start": "MiniLM layers:1,3,5",
        "trial": 1,
        "record_id": f"{sorted(changes.items())} {name}",
        "indexes": [],
    }
    record = make_score(name, 80.0, **(fields | changes))
    scores = [s for s in record.scores if s.task == "sts" and not record.documents]
    if ndcg is not None:
        scores += [found("test", ndcg), found("dev", ndcg + 1)]
        if record.select != "sts" and not (record.documents and "sts" in record.select):
            scores.append(found("dev", ndcg + 1, task="selection", set="retrieval"))
    return record.model_copy(update={"scores": scores})


def pair(make_score: Any, name: str, ndcg: float, **changes: Any) -> ScoreRecord:
    return encoder(make_score, f"{name}, teacher's documents", ndcg, documents=DOCUMENTS, **changes)


def records_of(make_score: Any, **changes: Any) -> list[ScoreRecord]:
    """A teacher, two students with either documents, and a quicker one that keeps too little."""
    whole = {"role": "teacher", "method": "teacher", "dim": 384, "trial": None, "model": "", "latency_ms": 4.0}
    coded = {"quantisation": "int4", "bytes_per_vector": 32, "latency_ms": 1.0}
    return [
        encoder(make_score, "teacher", 50.0, **whole, **changes),
        encoder(make_score, "HPD d=64", 46.0, **coded, **changes),
        pair(make_score, "HPD d=64", 48.5, **coded, **changes),
        encoder(make_score, "HPD d=64", 47.0, latency_ms=1.0, **changes),
        pair(make_score, "HPD d=64", 49.0, latency_ms=1.0, **changes),
        encoder(make_score, "HPD d=256", 49.0, dim=256, trial=2, latency_ms=2.0, **changes),
        pair(make_score, "HPD d=256", 49.5, dim=256, trial=2, latency_ms=2.0, **changes),
        encoder(make_score, "static", 29.0, trial=3, latency_ms=0.01, **changes),
        pair(make_score, "static", 30.0, trial=3, latency_ms=0.01, **changes),
    ]


def sentences(board: Leaderboard) -> list[str]:
    return [line for line in answer(board).sentences() if "embed queries" in line or "for queries" in line]


SAID = (
    "For search: embed queries with HPD d=64 (4 times as fast as the teacher on a CPU), documents once with "
    "all-MiniLM-L6-v2 and its PCA (250 sentences per second) in int4, 32 bytes a vector (48 times smaller): keeps 97.0 % of "
    "the teacher's nDCG@10 (92.0 % with its own documents). (nDCG@10 48.50; one seed, no interval)"
)


@pytest.mark.parametrize("select", ["sts", "retrieval", "retrieval=0.7,sts=0.3"])
def test_the_fastest_pair_in_fewest_bytes_is_told_beside_a_choice_that_it_has_no_part_in(
    make_score: Any, select: str
) -> None:
    board = leaderboard(records_of(make_score, select=select))
    assert sentences(board) == [SAID]
    chosen = answer(board)
    first, *_, last = chosen.rows
    assert not first.record.documents and last in board.rows and last.name == "HPD d=64, teacher's documents"
    assert [row for row in chosen.rows if row.record.documents] == [last]
    assert chosen.recommendations[-1].command.endswith(f"--student {last.anchor} --to DIR")


def test_where_no_pair_keeps_enough_the_best_is_told_and_none_that_is_no_faster_than_the_teacher(
    make_score: Any,
) -> None:
    teacher, *_, static = records_of(make_score)
    better = pair(make_score, "better", 40.0, trial=4, latency_ms=3.0)
    slow = pair(make_score, "slow", 49.0, trial=5, latency_ms=4.0)
    (said,) = sentences(leaderboard([teacher, static, better, slow]))
    assert said.startswith("For search: embed queries with better (1.33 times") and "keeps 80.0 % of" in said
    assert sentences(leaderboard([teacher, slow])) == []
    untimed = [r.model_copy(update={"latency_ms": None}) for r in (teacher, static, slow)]
    (said,) = sentences(leaderboard(untimed))
    assert said.startswith("For search: embed queries with slow, documents once with all-MiniLM-L6-v2 and its PCA in ")


def test_a_student_that_is_as_good_with_its_own_documents_is_no_pair_to_take(make_score: Any) -> None:
    teacher = records_of(make_score)[0]
    alike = [encoder(make_score, "s", 48.0, latency_ms=1.0), pair(make_score, "s", 48.0, latency_ms=1.0)]
    assert sentences(leaderboard([teacher, *alike])) == []
    asked = [record.model_copy(update={"select": BY_TEACHER}) for record in records_of(make_score, select="retrieval")]
    assert sentences(leaderboard(asked)), "it is what was asked for"


def test_the_page_says_how_far_an_index_looks_for_a_students_queries(
    make_score: Any, make_cost: Any, tmp_path: Path
) -> None:
    teacher, *_, slow = records_of(make_score)
    setting = "nprobe=7 finds what 5 finds of the teacher's queries (97.5 %)"
    wide = [make_cost("ivf", 97.5, nlist=64, nprobe=nprobe, setting=s) for nprobe, s in ((5, ""), (7, setting))]
    page = write_report(
        [teacher, slow.model_copy(update={"indexes": wide})], tmp_path / "pairs", title="own"
    ).read_text()
    assert "<li>static, teacher&#39;s documents: ivf, nprobe=7 finds what 5 finds of the teacher&#39;s queries" in page
    assert "look further" not in write_report([teacher], tmp_path / "none", title="own").read_text()


def test_without_a_dev_score_of_searches_nothing_is_said_of_pairs(make_score: Any) -> None:
    def without_dev(record: ScoreRecord) -> ScoreRecord:
        kept = [s for s in record.scores if (s.task, s.split) != ("retrieval", "dev")]
        return record.model_copy(update={"scores": kept})

    assert sentences(leaderboard([without_dev(r) for r in records_of(make_score)])) == []


def test_a_page_without_retrieval_sets_says_nothing_of_pairs(make_score: Any, tmp_path: Path) -> None:
    records = [encoder(make_score, r.label, None) for r in records_of(make_score) if not r.documents]
    page = write_report(records, tmp_path, title="own").read_text()
    assert "For search" not in page and "teacher's documents" not in page and "pairs" not in page


def test_selected_by_the_teachers_documents_a_pair_can_be_the_first_choice(make_score: Any) -> None:
    board = leaderboard(records_of(make_score, select=BY_TEACHER))
    first = answer(board).recommendations[0]
    assert first.text() == SAID.replace("For search: embed queries with", "Take for queries").replace(
        "documents). (",
        "documents); also the smallest that keeps 95 % and the best in 64 bytes. (",
    )
    assert sum("For search" in line for line in answer(board).sentences()) == 0, "it is said once"
    assert "selected by nDCG@10 of their queries among the teacher's documents on dev" in notices(board)[1]


def test_runs_of_one_measure_are_shown_by_it_whoever_embeds_the_documents(make_score: Any) -> None:
    own, across = records_of(make_score, select="retrieval"), records_of(make_score, select=BY_TEACHER, run="across")
    board = leaderboard([*own, *across])
    assert str(board.selection) == "retrieval" and not board.selection.by_teacher
    assert str(leaderboard(across).selection) == BY_TEACHER
    assert str(leaderboard([*own, *records_of(make_score, run="sts")]).selection) == "sts"


def test_pairs_are_rows_of_their_own(make_score: Any) -> None:
    records = records_of(make_score, select="retrieval")
    started = encoder(make_score, "HPD d=64", 40.0, start="MiniLM layers:0,5", select="retrieval")
    board = leaderboard([*records, started])
    names = {row.name for row in board.rows}
    assert {"HPD d=64, 3 layers", "HPD d=64, 2 layers", "HPD d=64, 3 layers, teacher's documents"} <= names
    assert len({rivals(row.record) for row in board.rows if row.name.startswith("HPD d=64, 3")}) == 4
    assert len(encoder_lines(board)) == len(names)
    frame = board_frame(board)
    assert set(frame.documents) == {"", DOCUMENTS} and frame.ndcg10.notna().all()
    told = [row.name for row in best_students(board) if row.record.trial == 1]
    assert "HPD d=64, 3 layers, teacher's documents" in told and "HPD d=64, 3 layers" in told


def test_marks_and_fronts_compare_pairs_among_themselves(make_score: Any) -> None:
    board = leaderboard(records_of(make_score, select="retrieval"))
    best = {(row.name, row.record.quantisation) for row in board.rows if row.best_in_bytes}
    assert best == {("HPD d=64, teacher's documents", "float32"), ("HPD d=64", "float32")}
    fronts = compute_quality(board).fronts
    assert fronts["best students"] == ((32, 46.0), (256, 47.0), (1024, 49.0))
    assert fronts["best with teacher's documents"] == ((32, 48.5), (256, 49.0), (1024, 49.5))
    figure = board_plots(board, serving_costs(board))["quality-bytes"]
    names = [trace["name"] for trace in json.loads(figure.figure)["data"]]
    assert names[1].startswith(names[0]) and names[1].endswith(", teacher's documents")


def test_a_run_keeps_the_rows_of_a_student_with_either_documents(make_score: Any, tmp_path: Path) -> None:
    records = records_of(make_score, configuration="mine")
    append_records(tmp_path / "scores.jsonl", records)
    assert len(latest_scores(tmp_path)) == len(records)


def test_terminal_best_and_markdown_say_it_with_the_command(make_score: Any, tmp_path: Path) -> None:
    run = tmp_path / "run"
    append_records(run / "scores.jsonl", records_of(make_score))
    records = latest_scores(run)
    lines = terminal_summary(records, run)
    place = lines.index(SAID)
    anchor = lines[place + 1].split()[-3]
    assert lines[place + 1] == f"    distilbench export {run} --student {anchor} --to DIR"
    table = [line for line in lines if line.startswith("HPD d=64, teacher's documents")]
    assert len(table) == 1 and " - " in table[0], "it has no STS"
    best = best_of_runs([run], ServingBudget())
    assert best.text().endswith(f"{SAID}\n\n    distilbench export {run} --student {anchor} --to DIR")
    said = best.to_json()["for_search"]
    assert said["summary"] == SAID and said["documents"] == DOCUMENTS and said["export"].split()[-3] == anchor
    small = best_of_runs([run], ServingBudget(latency_ms=0.5))
    assert small.to_json()["for_search"]["name"] == "static, teacher's documents"
    page = write_report(records, tmp_path / "report", title="own").read_text()
    assert "For search: embed queries with" in page.replace("\u00a0", " ").replace("&nbsp;", " ")
    assert SAID[:60] in (tmp_path / "report" / "leaderboard.md").read_text()
    own = (tmp_path / "report" / "encoders" / f"{anchor}.html").read_text()
    assert "this student embeds the queries" in own and f"--student {anchor}" in own


def test_the_table_of_pairs_has_a_line_for_each_or_none(
    make_score: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tool = runpy.run_path(str(Path(__file__).parents[2] / "tools" / "pairs_table.py"))
    records = records_of(make_score, select=BY_TEACHER)
    ends = [score.model_copy(update={"low": 49.0, "high": 51.0}) for score in records[0].scores]
    append_records(tmp_path / "run" / "scores.jsonl", [records[0].model_copy(update={"scores": ends}), *records[1:-2]])
    monkeypatch.setattr(sys, "argv", ["pairs_table.py", str(tmp_path / "run")])
    tool["main"]()
    assert "| MiniLM layers:1,3,5 | 64 | float32 | 256 | 47.00 (94.0 %) | 49.00 (98.0 %) |" in capsys.readouterr().out
    append_records(tmp_path / "run" / "scores.jsonl", records[-2:])  # of another trial, with the same start and width
    with pytest.raises(SystemExit, match=r"static.*: it would have the line of HPD d=64|HPD d=64.*the line of static"):
        tool["main"]()
