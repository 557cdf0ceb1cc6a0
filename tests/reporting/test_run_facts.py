"""What is known of a run."""

from __future__ import annotations

import re

import numpy as np
import pytest

from distilbench.records import append_records
from distilbench.reporting.board import leaderboard
from distilbench.reporting.page import Pages, write_report
from distilbench.reporting.run_facts import run_facts, run_file
from distilbench.stage_times import TIMINGS, StageTiming
from distilbench.storage.files import write_json


@pytest.fixture
def two_runs(make_score, make_trial, tmp_path):
    """Records and folders of two sweeps: "b" has another learning rate's range, commit and seeds."""

    def make(**changes):
        records, folders = [], []
        for name, low, quality in (("a", 1e-4, 75.0), ("b", 1e-3, 76.0)):
            folder = tmp_path / name
            own = [
                make_trial(n, run=name, objective=70.0 + n, state="PRUNED" if n == 2 else "COMPLETE") for n in range(3)
            ]
            own += [make_score(f"s{d}", quality + d / 64, run=name, dim=d, record_id=f"{name}{d}") for d in (32, 64)]
            if name == "b":
                other = own[0].provenance.model_copy(update={"commit": "fff", "versions": {"synthetic": "1.0"}})
                own = [r.model_copy(update={"provenance": other}) for r in own]
            append_records(folder / "trials.jsonl", own[:3])
            append_records(folder / "scores.jsonl", own[3:])
            config = {"parameters": {"lr": {"low": low, "high": 0.1}}, "searcher": "tpe"}
            write_json(folder / "config.json", config | changes.get(name, {}))
            records += own
            folders.append(folder)
        return records, folders

    return make


def test_the_facts_of_a_run(two_runs):
    records, folders = two_runs()
    board = leaderboard(records)
    a, b = run_facts(records, board, folders)
    assert (a.run, a.trials, a.rows, dict(a.states)) == ("a", 3, 2, {"COMPLETE": 2, "PRUNED": 1})
    assert a.steps == 300 + 300 + 100  # the pruned one's 72 belongs to an earlier rung
    assert a.described.config["parameters.lr.low"] == 1e-4 and a.described.stage == "" and a.described.wanted is None
    assert a.file == run_file("a") != b.file and re.fullmatch(r"runs/s-[0-9a-f]{12}\.html", a.file)
    assert run_facts(records, board)[0].described.config == {}


def test_a_stopped_trial_that_is_confirmed_is_still_a_trial_of_the_search(two_runs):
    records, folders = two_runs()
    stopped = next(r for r in records if getattr(r, "state", "") == "PRUNED")
    confirmed = stopped.model_copy(update={"state": "COMPLETE", "confirms": True})
    a, _ = run_facts([*records, confirmed], leaderboard(records), folders)
    assert (a.trials, dict(a.states), a.confirmations) == (3, {"COMPLETE": 2, "PRUNED": 1}, 1)


def test_the_number_of_training_sentences_is_told(two_runs, tmp_path):
    records, folders = two_runs()
    assert "training sentences" not in write_report(records, tmp_path / "none", title="t", folders=folders).read_text()
    for folder, count in zip(folders, (212_000, 90), strict=True):
        (folder / "prepared").mkdir()
        np.save(folder / "prepared" / "train.npy", np.arange(count))
        page = write_report(records, tmp_path / "page", title="t", folders=folders).read_text()
        assert ("up to 212,000 training sentences" in page) == (count == 90) and "212,000 training sentences" in page
    board = leaderboard(records)
    described = [run.described for run in run_facts(records, board, folders)]
    assert [run.described.sentences for run in run_facts(records, board, described=described)] == [212_000, 90]
    np.save(folders[0] / "prepared" / "train.npy", np.array([object()]), allow_pickle=True)
    assert run_facts(records, board, folders)[0].described.sentences is None


@pytest.mark.parametrize("on_gpu", [False, True])
def test_what_the_stages_took_is_shown_and_kept(two_runs, tmp_path, on_gpu):
    records, folders = two_runs()
    board = leaderboard(records)
    shared = [StageTiming(stage="Teacher <b>encoding", seconds=30.25, count=900, workers=2, worker_mb=1234.4)]
    write_json(tmp_path / TIMINGS, [took.model_dump() for took in shared])  # of the sweep of both
    own = [{"stage": "search", "seconds": 5.0, "driver_mb": 678.0, "gpu_mb": 345.0 * on_gpu}]
    write_json(folders[0] / TIMINGS, own)
    a, b = run_facts(records, board, folders)
    assert [took.stage for took in a.described.timings] == ["Teacher <b>encoding", "search"] and list(
        b.described.timings
    ) == shared
    assert [run.described.timings for run in run_facts(records, board, described=[a.described, b.described])] == [
        a.described.timings,
        b.described.timings,
    ]
    page = Pages(records, board, "t").run(a)
    assert ("GPU,\u00a0MB" in page) == on_gpu and (">345</td>" in page) == on_gpu
    assert "Teacher &lt;b&gt;encoding" in page and "<b>" not in page
    assert ">1,234</td>" in page and ">678</td>" in page and ">30.2</td>" in page
    write_json(folders[1] / TIMINGS, ["nonsense"])
    (tmp_path / TIMINGS).unlink()
    b = run_facts(records, board, folders)[1]
    assert b.described.timings == ()
    assert "Time and memory" not in Pages(records, board, "t").run(b)


def test_the_ranking_that_chose_the_layers_is_shown(two_runs):
    records, folders = two_runs()
    shared = {
        "student": "auto:2",
        "encoder": "<b>tiny",
        "count": 4,
        "depth": 2,
        "sentences": 900,
        "tried": 6,
        "seconds": 2.5,
    }
    of_pairs = [{"layers": [0, 3], "regressed": 81.5}, {"layers": [1, 3], "regressed": 80.0}]
    of_queries = [{"layers": [0, 2], "regressed": 40.125}]
    ranked = {"search": "every choice", "dev": ["STSB dev"], "choices": of_pairs}
    other = {"search": "greedy", "dev": ["squad dev"], "measure": "nDCG@10", "choices": of_queries}
    for folder, of in zip(folders, (ranked, other), strict=True):
        write_json(folder / "prepared" / "layer-rankings.json", [shared | of])
    board = leaderboard(records)
    a, b = run_facts(records, board, folders)
    assert [r.chosen for r in a.described.rankings] == [(0, 3)] and [r.chosen for r in b.described.rankings] == [(0, 2)]

    def page_of(run):
        return Pages(records, board, "Synthetic").run(run)

    page = page_of(a)
    assert "2 of the 4 layers of &lt;b&gt;tiny: all 6 choices on 900 sentences" in page and "Taken: 0,3." in page
    assert re.search(r'0,3 <span class="badge complete">taken</span></th>\s*<td data-v="81.5">81.50</td>', page)
    assert "Dev Spearman after regression" in page and page.count("taken</span>") == 1
    page = page_of(b)
    assert "ranked by dev nDCG@10 (squad dev)" in page and "the best layer, then the best to add" in page
    (folders[0] / "prepared" / "layer-rankings.json").write_text("half")
    a = run_facts(records, board, folders)[0]
    assert a.described.rankings == () and "Layers of the students" not in page_of(a)
