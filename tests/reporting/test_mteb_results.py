"""Results for mteb (benchmarks/mteb_results.py): its own classes read them, and only true counterparts are written."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from distilbench.records import Score
from distilbench.reporting.board import leaderboard

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from mteb_results import COUNTERPARTS, files, write

ITEMS = {name: task.items for (_, name), task in COUNTERPARTS.items()}
DIGEST = "ab" * 32


@pytest.fixture
def scored(make_score):
    """A record whose STS sets have as many pairs as mteb's, `changes` over it."""

    def made(label="student d=64", quality=75.0, **changes):
        record = make_score(label, quality)
        scores = [s.model_copy(update={"n": ITEMS.get(s.set, s.n)}) for s in record.scores]
        fields = {"scores": scores, "sets": {f"{name}/test": DIGEST for name in ITEMS}} | changes
        return record.model_copy(update=fields)

    return made


def written(records, folder):
    write(leaderboard(records), folder / "mteb")
    return {path.relative_to(folder / "mteb").as_posix(): path for path in (folder / "mteb").rglob("*.json")}


def names(records):
    return sorted({Path(path).stem for path, _ in files(leaderboard(records))} - {"model_meta"})


def test_mteb_reads_the_files_and_finds_our_scores(scored, tmp_path):
    mteb = pytest.importorskip("mteb", reason="mteb is not installed")
    from mteb.models.model_meta import ModelMeta
    from mteb.results import TaskResult

    record = scored()
    paths = written([record], tmp_path)
    ours = {s.set: s.value for s in record.scores if (s.task, s.split, s.variant) == ("sts", "test", "all")}
    found = {path.stem: path for path in paths.values() if path.stem != "model_meta"}
    assert {
        task: COUNTERPARTS["sts", name].name for name in ours for task in [COUNTERPARTS["sts", name].name]
    }.keys() == (found.keys())
    for name, value in ours.items():
        task = mteb.get_task(COUNTERPARTS["sts", name].name)
        for result in (
            TaskResult.from_disk(found[task.metadata.name]),
            TaskResult.from_dict(json.loads(found[task.metadata.name].read_text())),
        ):
            assert result.get_score() == pytest.approx(value / 100, abs=1e-12)
            assert result.task_name == task.metadata.name and list(result.scores) == task.metadata.eval_splits
            [scores] = result.scores["test"]
            assert scores[task.metadata.main_score] == scores["main_score"]
            assert result.get_missing_evaluations(task) == {}
            assert result.dataset_revision != task.metadata.revision and result.mteb_version is None
    [meta] = [path for path in paths.values() if path.stem == "model_meta"]
    model = ModelMeta.model_validate(json.loads(meta.read_text()))
    assert model.embed_dim == 64 and model.n_parameters == 17_000_000
    assert model.revision == meta.parent.name and model.model_name_as_path() == meta.parent.parent.name


def test_a_file_says_what_is_known_and_no_more(scored, tmp_path):
    [path] = [path for path in written([scored()], tmp_path).values() if path.stem == "STS12"]
    assert json.loads(path.read_text()) == {
        "dataset_revision": f"distilbench:sha256:{DIGEST}",
        "task_name": "STS12",
        "mteb_version": None,
        "scores": {
            "test": [
                {
                    "spearman": 0.67,
                    "cosine_spearman": 0.67,
                    "main_score": 0.67,
                    "hf_subset": "default",
                    "languages": ["eng-Latn"],
                }
            ]
        },
        "evaluation_time": None,
        "kg_co2_emissions": None,
    }


def test_only_whole_sets_float32_and_real_data_have_a_counterpart(scored, make_score):
    assert names([scored()]) == ["STS12", "STS13", "STS14", "STSBenchmark"]
    assert names([make_score("other sizes")]) == []
    assert names([scored(demonstration=True)]) == []
    assert names([scored(quantisation="int8")]) == []
    tokenised = [s.model_copy(update={"task": "sts-tokenised"}) for s in scored().scores]
    assert names([scored(scores=tokenised)]) == []
    weighted = [s for s in scored().scores if s.variant != "all"]
    assert names([scored(scores=weighted)]) == []
    # mteb's SICK-R is all 9,927 pairs
    sick = Score(task="sts", set="SICK", split="test", metric="spearman", variant="all", value=70.0, n=4927)
    assert names([scored(scores=[sick])]) == []
