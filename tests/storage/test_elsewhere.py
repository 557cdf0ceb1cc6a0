"""Trainings on nodes that have none of the driver's folders: what they need comes from storage, what they make goes there."""

from __future__ import annotations

import json
import pickle
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from samples import comparable_rungs

from distilbench.cluster import path_map as module
from distilbench.cluster import run_copy
from distilbench.cluster.path_map import PathMap, map_run, prepared_keys
from distilbench.cluster.resources import TrialResources
from distilbench.data.corpus import Corpus
from distilbench.data.folder import Limits, folder_corpus
from distilbench.data.requirements import Requirements
from distilbench.data.sentences import SentenceFile
from distilbench.encoders.encoder import EncoderSpec
from distilbench.methods import get_method
from distilbench.prepare.augment.words import Swap
from distilbench.prepare.copies import Copying
from distilbench.prepare.encode import TeacherEncoding
from distilbench.prepare.pool import Shard, ShardTask, ShardWorker
from distilbench.prepare.pool import _collect as _collect_shard
from distilbench.prepare.prepared import load_prepared
from distilbench.prepare.tokens import Tokenising
from distilbench.storage.arrays import MANIFEST
from distilbench.storage.files import write_json
from distilbench.storage.remote import Remote, files_in
from distilbench.storage.store import ArtifactStore
from distilbench.trials import jobs
from distilbench.trials.budget import Budget
from distilbench.trials.jobs import Job, _collect, finish
from distilbench.trials.rung_training import RungTraining, known_rungs
from distilbench.trials.scoring import Candidate, Encoded
from distilbench.trials.training_spec import TrainingSpec

PARAMS = {"output_dim": 8, "lr": 0.003, "batch_size": 16, "epochs": 200.0}
ALONE = TrialResources(1, 0, 1, "")
BUDGET = Budget(trials=1, steps=18, rungs=3, eta=3, start=False)


class Sites:
    """A driver's folders, and nodes that have folders of their own only."""

    def __init__(self, root: Path, storage: Remote, prepared: Path, patch: pytest.MonkeyPatch) -> None:
        self.root, self.patch, self.prepared = root, patch, prepared
        store = ArtifactStore(prepared.parent / "store", storage / "store")
        for path in store.root.iterdir():
            if (path / MANIFEST).exists():
                store.push(path)
        self.run = root / "runs" / "r"
        self.run.mkdir(parents=True)
        self.driver = map_run(store, self.run, storage / "runs" / "r", prepared)
        patch.setattr(run_copy, "active_map", lambda: self.driver)
        patch.setattr(jobs, "active_map", lambda: self.driver)

    def node(self, name: str) -> PathMap:
        """From here on this process is on that node."""
        self.patch.setenv("DISTILBENCH_SCRATCH", str(self.root / name))
        module._fetched.cache_clear()
        return replace(self.driver, node="the driver's")


@pytest.fixture
def sites(tmp_path: Path, s3: Remote, prepared_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Sites:
    return Sites(tmp_path, s3, prepared_folder, monkeypatch)


@pytest.fixture(scope="module")
def corpus(data_folder: Path) -> Corpus:
    """That of `prepared_folder`."""
    return folder_corpus(data_folder, Limits(), Requirements(triplets=True))


def full(method: str = "mse", **params: Any) -> dict[str, Any]:
    return get_method(method).params_type.model_validate({**PARAMS, **params}).model_dump(mode="json", by_alias=True)


def training(place: PathMap, folder: Path, prepared: Path, **params: Any) -> RungTraining:
    """On this node the training whose folder on the driver is `folder`."""
    log = folder.parent.parent / "logs" / "hang.txt"
    spec = TrainingSpec("mse", full(**params), 0, BUDGET, prepared, folder, log, hang_s=60)
    return RungTraining(spec.localised(place), "cpu")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, prepared_folder: Path) -> list[Any]:
    """The rungs of a training that nothing interrupted, on a machine with a disk."""
    folder = tmp_path_factory.mktemp("whole")
    spec = TrainingSpec("mse", full(), 0, BUDGET, prepared_folder, folder / "t", folder / "hang.txt")
    own = RungTraining(spec, "cpu")
    while not own.done:
        own.advance()
    assert len(own.rungs) == 3 and not own.failed
    return comparable_rungs(own.rungs)


def test_a_training_goes_on_on_another_node(sites: Sites, prepared_folder: Path, whole: list[Any]) -> None:
    folder = sites.run / "trials" / "00000"
    one = training(sites.node("one"), folder, prepared_folder)
    one.advance()
    one.advance()
    place = sites.node("two")
    two = training(place, folder, prepared_folder)
    assert len(two.rungs) == 2 and two.trainer.step == 6
    two.advance()
    assert comparable_rungs(two.rungs) == whole
    assert list(sites.run.rglob("*")) == []  # nothing was written under the driver's paths
    used = json.loads((place.prepared(prepared_folder) / "prepared.json").read_text())
    assert all(str(sites.root / "two") in used[name] for name in ("pca", "tokens"))
    assert used["vectors"]["folder"].startswith(str(sites.root / "two"))
    assert used["teacher"]["name"].startswith(str(sites.root / "two"))  # the driver's own folder is not read
    back = training(sites.node("one"), folder, prepared_folder)  # where an older state lies
    assert back.done and comparable_rungs(back.rungs) == whole


def test_layers_of_another_encoder_travel(
    tmp_path: Path,
    prepared_folder: Path,
    encoder_folder: Path,
    s3: Remote,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The folder in layers:0,2@FOLDER goes to the storage, a node reads its own copy, and the layers are in the key."""
    rule, folder = "layers:0,2", Path(shutil.copytree(prepared_folder, tmp_path / "run" / "prepared"))
    other = Path(shutil.copytree(encoder_folder, tmp_path / "other"))
    kept = json.loads((folder / "prepared.json").read_text())
    (folder / "prepared.json").write_text(json.dumps({**kept, "student": f"{rule}@{other}"}))
    described = json.loads((folder / "prepared.json").read_text())
    store = ArtifactStore(prepared_folder.parent / "store", s3 / "store")
    place = map_run(store, tmp_path / "run", s3 / "runs" / "r", folder)
    assert str(other) in place.folders and place.keys is not None
    monkeypatch.setenv("DISTILBENCH_SCRATCH", str(tmp_path / "node"))
    own = replace(place, node="the driver's").localise({"student": f"{rule}@{other}", "pca": "elsewhere"})
    assert own["pca"] == "elsewhere" and own["student"].startswith(f"{rule}@{tmp_path}/node/store/folder-")
    assert place.localise({"student": rule}) == {"student": rule}
    keys = {place.keys.content}
    for changed in (
        {"student": "layers:1@/elsewhere/other"},
        {"student": f"{rule}@/elsewhere/other", "pooling": "cls"},
    ):
        write_json(folder / "prepared.json", described | changed)
        keys.add(prepared_keys(folder).content)
    assert len(keys) == 3
    write_json(folder / "prepared.json", described | {"student": f"{rule}@/elsewhere/other"})
    assert prepared_keys(folder).content == place.keys.content  # another machine's path, the same training


def test_a_node_that_dies_between_checkpoint_and_report(
    sites: Sites, prepared_folder: Path, whole: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    folder, put = sites.run / "trials" / "00000", Remote.put

    def die(self: Remote, path: Path, name: str, *more: Any) -> None:
        if name == "rungs.json" and "rung-2.safetensors" in self.list():
            raise Killed
        put(self, path, name, *more)

    one = training(sites.node("one"), folder, prepared_folder)
    one.advance()
    monkeypatch.setattr(Remote, "put", die)
    with pytest.raises(Killed):
        one.advance()
    monkeypatch.setattr(Remote, "put", put)
    two = training(sites.node("two"), folder, prepared_folder)
    assert len(two.rungs) == 1 and two.trainer.step == 6
    while not two.done:
        two.advance()
    assert comparable_rungs(two.rungs) == whole


def test_what_is_there_of_another_training_is_not_taken(sites: Sites, prepared_folder: Path, whole: list[Any]) -> None:
    # A head that was lost had begun this trial with other values; its study is older than the trial.
    folder = sites.run / "trials" / "00000"
    other = training(sites.node("one"), folder, prepared_folder, lr=0.001)
    other.advance()
    for node in ("one", "two"):
        own = training(sites.node(node), folder, prepared_folder)
        assert own.rungs == [] and own.trainer.step == 0
    while not own.done:
        own.advance()
    assert comparable_rungs(own.rungs) == whole


def test_only_the_newest_checkpoints_are_kept_there(sites: Sites, prepared_folder: Path) -> None:
    folder = sites.run / "trials" / "00000"
    own = training(sites.node("one"), folder, prepared_folder)
    while not own.done:
        own.advance()
    there = sites.driver.remote_of(folder).list()
    assert [n for n in there if not n.startswith("training-")] == [
        "best.safetensors",
        "rung-2.safetensors",
        "rung-3.safetensors",
        "rungs.json",
    ]


@pytest.mark.slow
def test_a_job_on_another_node_reaches_the_driver(sites: Sites, prepared_folder: Path, corpus: Corpus) -> None:
    candidate = Candidate("r", "student", "mse", 8, full(), 0, configuration="A")
    job = Job(candidate, BUDGET, sites.run, sites.run / "trials" / "key", "students/key")
    outcome = finish(job, prepared_folder, corpus, ALONE, sites.node("one"))
    assert outcome.job == job and not outcome.failed and len(outcome.rungs) == 3
    assert list(sites.run.rglob("*")) == []
    _collect(job)
    found = Encoded.load(job.folder)
    assert found is not None and comparable_rungs(known_rungs(job.folder)) == comparable_rungs(outcome.rungs)

    alone = replace(job, run=sites.root / "alone", folder=sites.root / "alone" / "trials" / "key")
    alone.run.mkdir()
    finish(alone, prepared_folder, corpus, ALONE)
    expected = Encoded.load(alone.folder)
    assert expected is not None and np.array_equal(found.vectors_ND, expected.vectors_ND)
    students = [files_in(run / "students" / "key") for run in (sites.run, alone.run)]
    assert students[0].keys() == students[1].keys()
    for name in students[0]:
        if name.endswith(".safetensors"):
            assert students[0][name].read_bytes() == students[1][name].read_bytes()
    assert any(name.endswith(".safetensors") for name in students[0])


def test_a_job_that_another_driver_had_finished_is_not_repeated(
    sites: Sites, prepared_folder: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    from distilbench.trials.jobs import finish_jobs

    candidate = Candidate("r", "student", "mse", 8, full(), 0, configuration="A")
    job = Job(candidate, BUDGET, sites.run, sites.run / "trials" / "key", "students/key")
    finish(job, prepared_folder, corpus, ALONE, sites.node("one"))
    got: list[Any] = []
    # Without a remote task: there is nothing left to do.
    monkeypatch.setattr("ray.remote", lambda **_: pytest.fail("a job was started"))
    left = finish_jobs([job], prepared_folder, corpus, ALONE, got.append)
    assert left == [] and [o.failed for o in got] == [""] and (sites.run / "students" / "key" / "modules.json").exists()


def on_a_node(task: ShardTask, shards: list[Shard], place: PathMap, driver: PathMap) -> None:
    """As `run_pool` does with an actor on another node."""
    for name in task.reads:
        there, own = driver.shard(task.folder, name)
        there.put(task.folder / name, own)
    worker = ShardWorker(pickle.loads(pickle.dumps(task)), pickle.loads(pickle.dumps(place)))  # noqa: S301
    for shard, start, stop in shards:
        batch = {"shard": np.array([shard]), "start": np.array([start]), "stop": np.array([stop])}
        said = worker(batch)
        assert said.pop("peak_mb")[0] > 0
        assert said == {"shard": [shard], "count": [stop - start], "error": [""]}
        assert not any((task.folder / name).exists() for name in task.files(shard))
        _collect_shard(task, shard, driver)


@pytest.mark.parametrize("kind", ["embeddings", "tokens", "copies"])
def test_shards_of_another_node_reach_the_driver(
    sites: Sites, kind: str, encoder_folder: Path, corpus: Corpus, tmp_path: Path
) -> None:
    store = sites.driver.store
    sentences = SentenceFile(next(store.glob("sentences-*")) / "sentences.arrow")
    folder = store / f"{kind}-{tmp_path.name}.partial"
    spec = EncoderSpec(str(encoder_folder)).absolute()

    def task(folder: Path) -> ShardTask:
        folder.mkdir(parents=True)
        if kind == "copies":
            np.save(folder / "rows.npy", corpus.train)
            return Copying(Swap(), 0, sentences, folder)
        if kind == "tokens":
            return Tokenising(spec, sentences, folder)
        return TeacherEncoding(spec, sentences, folder, "cpu", "float16")

    away, here = task(folder), task(tmp_path / "here")
    shards = [(0, 0, 20), (1, 20, 33)]
    on_a_node(away, shards, sites.node("one"), sites.driver)
    make = here.load()
    for shard in shards:
        make(*shard)
        for name in here.files(shard[0]):
            assert (folder / name).read_bytes() == (tmp_path / "here" / name).read_bytes()
    unfinished = sites.driver.remote_store / folder.name.removesuffix(".partial")
    assert set(away.files(0)) | set(away.files(1)) <= set(unfinished.list())  # also for a driver that comes later


def test_a_node_that_cannot_have_an_artifact_says_so(sites: Sites) -> None:
    folder = sites.driver.store / "embeddings-y.partial"
    folder.mkdir()
    gone = sites.driver.store / "sentences-000000000000000000000000" / "sentences.arrow"
    spec = load_prepared(sites.prepared).teacher.absolute()
    worker = ShardWorker(TeacherEncoding(spec, SentenceFile(gone), folder, "cpu", "float16"), sites.node("one"))
    said = worker({"shard": np.array([0]), "start": np.array([0]), "stop": np.array([9])})
    assert "sentences-000000000000000000000000: not in the storage" in said["error"][0]
    folder.rmdir()
