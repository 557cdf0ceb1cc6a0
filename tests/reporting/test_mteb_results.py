"""Results for mteb: its own classes read them, their scores are ours, and only true counterparts are written."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from distilbench.records import Score
from distilbench.reporting.exports.mteb_results import COUNTERPARTS, Written, models, remove_others, write_mteb
from distilbench.reporting.table import leaderboard

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
    write_mteb(leaderboard(records), folder)
    return {path.relative_to(folder / "mteb").as_posix(): path for path in (folder / "mteb").rglob("*.json")}


def task_files(board):
    return [file for model in models(board) for file in model.files]


def names(records):
    return sorted({Path(file.path).stem for file in task_files(leaderboard(records))} - {"model_meta"})


def test_mteb_reads_the_files_and_finds_our_scores(scored, tmp_path):
    mteb = pytest.importorskip("mteb", reason="mteb is not installed")
    from mteb.models.model_meta import ModelMeta
    from mteb.results import TaskResult

    record = scored()
    files = written([record], tmp_path)
    ours = {s.set: s.value for s in record.scores if (s.task, s.split, s.variant) == ("sts", "test", "all")}
    found = {path.stem: path for path in files.values() if path.stem != "model_meta"}
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
    [meta] = [path for path in files.values() if path.stem == "model_meta"]
    model = ModelMeta.model_validate(json.loads(meta.read_text()))
    assert model.embed_dim == 64 and model.n_parameters == 17_000_000
    assert model.revision == meta.parent.name and model.model_name_as_path() == meta.parent.parent.name


def test_mtebs_result_cache_finds_them(scored, tmp_path):
    mteb = pytest.importorskip("mteb", reason="mteb is not installed")

    written([scored()], tmp_path / "cache")
    os.rename(tmp_path / "cache" / "mteb", tmp_path / "cache" / "results")
    cache = mteb.ResultCache(cache_path=tmp_path / "cache")
    assert len(cache.get_cache_paths(include_remote=False)) == 4
    [(name, revision)] = cache.get_models(include_remote=False)
    assert name.replace("__", "/").startswith("distilbench/student-d-64-") and len(revision) == 40


def test_the_sizes_are_those_of_mtebs_own_data():
    mteb = pytest.importorskip("mteb", reason="mteb is not installed")

    for (kind, _), task in COUNTERPARTS.items():
        metadata = mteb.get_task(task.name).metadata
        sizes = metadata.descriptive_stats["test"]
        if kind == "sts":
            assert (sizes["num_samples"], metadata.main_score) == (task.items, "cosine_spearman")
        else:
            assert (sizes["num_queries"], sizes["num_documents"]) == (task.items, task.documents)
            assert metadata.main_score == "ndcg_at_10"


def test_a_file_says_what_is_known_and_no_more(scored, tmp_path):
    files = written([scored()], tmp_path)
    [path] = [path for path in files.values() if path.stem == "STS12"]
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


def test_retrieval_needs_the_same_documents_and_ndcg(scored, make_score):
    scores = [
        Score(task="retrieval", set="scifact", split="test", metric=metric, variant="all", value=60.0, n=300)
        for metric in ("ndcg@10", "mrr@10", "recall@100")
    ]
    flat = make_score("x").indexes[0].model_copy(update={"set": "scifact", "documents": 5183})
    assert names([scored(scores=scores, indexes=[flat])]) == ["SciFact"]
    assert names([scored(scores=scores, indexes=[flat.model_copy(update={"documents": 5000})])]) == []
    assert names([scored(scores=scores[1:], indexes=[flat])]) == []
    [content] = [
        f.content for f in task_files(leaderboard([scored(scores=scores, indexes=[flat])])) if "SciFact" in f.path
    ]
    [found] = content["scores"]["test"]
    assert found["main_score"] == found["ndcg_at_10"] == 0.6 and found["recall_at_100"] == 0.6


def test_every_seed_is_a_revision_of_one_model(scored):
    files = task_files(leaderboard([scored(record_id=f"r{seed}", seed=seed) for seed in range(3)]))
    models = {file.path.split("/")[0] for file in files}
    revisions = {file.path.split("/")[1] for file in files}
    assert len(models) == 1 and len(revisions) == 3 and len(files) == 15


def test_paths_are_derived_whatever_a_label_says(scored, tmp_path):
    hostile = scored(label="../../</script>=\x00|%", record_id="../../x", run="/etc")
    for file in task_files(leaderboard([hostile])):
        assert re.fullmatch(r"distilbench__[a-z0-9-]+/[0-9a-f]{40}/[A-Za-z0-9_-]+\.json", file.path)
    written([hostile], tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mteb"]


def test_old_files_go_and_foreign_ones_stay(scored, tmp_path):
    old = written([scored("old")], tmp_path)
    foreign = [tmp_path / "mteb" / "notes.json", next(iter(old.values())).parent / "mine.txt"]
    for path in foreign:
        path.write_text("mine")
    new = written([scored("new")], tmp_path)
    assert not set(old) & set(new) - {"notes.json"} and all(path.exists() for path in foreign)
    remove_others(tmp_path / "mteb", ())
    assert [path for path in tmp_path.rglob("*") if path.is_file()] and all(path.exists() for path in foreign)
    for path in foreign:
        path.unlink()


def test_nothing_is_left_where_nothing_has_a_counterpart(scored, make_score, tmp_path):
    written([scored()], tmp_path)
    assert write_mteb(leaderboard([make_score("other sizes")]), tmp_path) == Written(0, 0)
    assert not (tmp_path / "mteb").exists()


def test_of_many_models_the_first_have_files(scored, tmp_path):
    board = leaderboard([scored(f"row {n}", 70.0 + n, record_id=f"r{n}", dim=64 + n, trial=None) for n in range(5)])
    assert write_mteb(board, tmp_path, limit=2) == Written(2, 5)
    assert sorted(path.name.rsplit("-", 1)[0] for path in (tmp_path / "mteb").iterdir()) == [
        "distilbench__row-3",
        "distilbench__row-4",
    ]


def test_a_link_is_not_followed_to_delete(scored, tmp_path):
    written([scored()], tmp_path / "other")
    (tmp_path / "report").mkdir()
    os.symlink(tmp_path / "other" / "mteb", tmp_path / "report" / "mteb")
    remove_others(tmp_path / "report" / "mteb", ())
    assert len(list((tmp_path / "other").rglob("*.json"))) == 5


def test_the_same_files_are_left_alone(scored, tmp_path):
    before = {path: path.stat().st_mtime_ns for path in written([scored()], tmp_path).values()}
    assert {path: path.stat().st_mtime_ns for path in written([scored()], tmp_path).values()} == before


def test_the_product_never_imports_mteb():
    root = Path(__file__).parents[2] / "distilbench"
    assert not [path for path in root.rglob("*.py") if re.search(r"^\s*(import|from) mteb\b", path.read_text(), re.M)]
