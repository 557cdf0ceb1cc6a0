"""Trainings on nodes that have none of the driver's folders: what they need comes from storage, what they make goes there."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from samples import comparable_rungs

from distilbench.cluster import driver_files as module
from distilbench.cluster.driver_files import DriverFiles, content_key, share_run
from distilbench.cluster.resources import TrialResources
from distilbench.cluster.run_copy import copied
from distilbench.data.corpus import Corpus
from distilbench.data.folder import Limits, folder_corpus
from distilbench.data.requirements import Requirements
from distilbench.data.sentences import SentenceFile
from distilbench.encoders.encoder import EncoderSpec
from distilbench.errors import InputError
from distilbench.methods import get_method
from distilbench.prepare.augment.synonym import Synonym
from distilbench.prepare.copies import Copying
from distilbench.prepare.encode import TeacherEncoding
from distilbench.prepare.pool import Shard, ShardTask, ShardWorker
from distilbench.prepare.pool import _collect as _collect_shard
from distilbench.prepare.prepared import load_prepared
from distilbench.prepare.tokens import Tokenising
from distilbench.storage.arrays import MANIFEST
from distilbench.storage.files import write_json
from distilbench.storage.folder_copy import FolderCopy
from distilbench.storage.remote import Remote, files_in
from distilbench.storage.store import ArtifactStore
from distilbench.trials import jobs
from distilbench.trials.budget import Budget
from distilbench.trials.jobs import Job, _collect, finish
from distilbench.trials.rung_training import RungTraining, known_rungs
from distilbench.trials.scoring import Candidate, Encoded
from distilbench.trials.training_spec import TrainingCopy, TrainingSpec

PARAMS = {"output_dim": 8, "lr": 0.003, "batch_size": 16, "epochs": 200.0}
ALONE = TrialResources(1, 0, 1, "")
BUDGET = Budget(trials=1, steps=18, rungs=3, eta=3, start=False)


class Sites:
    """A driver, and nodes that have disks of their own: nothing of the driver's is there before it is fetched."""

    def __init__(self, root: Path, storage: Remote, prepared: Path, patch: pytest.MonkeyPatch) -> None:
        self.root, self.prepared = root, prepared
        store = ArtifactStore(prepared.parent / "store", storage / "store")
        for path in store.root.iterdir():
            if (path / MANIFEST).exists():
                store.push(path)
        self.run = root / "runs" / "r"
        self.run.mkdir(parents=True)
        driver = share_run(store, self.run, storage / "runs" / "r", prepared)
        self.driver, self.site = driver, "driver"
        patch.setattr(jobs, "driver_files", lambda: driver)

    def node(self, name: str) -> DriverFiles:
        """From here on this process is on that node; its disk takes the place of the one before."""
        for path in (self.prepared.parent, self.root / "runs"):
            before, disk = (path.with_name(f"{path.name} of {site}") for site in (self.site, name))
            path.rename(before)
            if disk.exists():
                disk.rename(path)
            else:
                path.mkdir()
        self.site = name
        module._fetched.cache_clear()
        return self.driver if name == "driver" else replace(self.driver, node="the driver's")


@pytest.fixture
def sites(tmp_path: Path, s3: Remote, prepared_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sites]:
    sites = Sites(tmp_path, s3, prepared_folder, monkeypatch)
    yield sites
    sites.node("driver")
    for disk in prepared_folder.parent.parent.glob(f"{prepared_folder.parent.name} of *"):
        shutil.rmtree(disk)


@pytest.fixture(scope="module")
def corpus(data_folder: Path) -> Corpus:
    """That of `prepared_folder`."""
    return folder_corpus(data_folder, Limits(), Requirements(triplets=True))


def full(method: str = "mse", **params: Any) -> dict[str, Any]:
    return get_method(method).params_type.model_validate({**PARAMS, **params}).model_dump(mode="json", by_alias=True)


def training(files: DriverFiles, folder: Path, prepared: Path, **params: Any) -> RungTraining:
    """On this node the training whose folder on the driver is `folder`."""
    log = folder.parent.parent / "logs" / "hang.txt"
    spec = TrainingSpec("mse", full(**params), 0, BUDGET, prepared, folder, log)
    return RungTraining(spec.on_node(files), "cpu")


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
    two = training(sites.node("two"), folder, prepared_folder)
    assert len(two.rungs) == 2 and two.trainer.step == 6
    two.advance()
    assert comparable_rungs(two.rungs) == whole
    assert two.spec.prepared.is_relative_to(prepared_folder.parent / "store")
    back = training(sites.node("one"), folder, prepared_folder)  # where an older state lies
    assert back.done and comparable_rungs(back.rungs) == whole


def test_the_encoder_of_a_student_is_on_every_node_under_its_path(
    tmp_path: Path, prepared_folder: Path, encoder_folder: Path, s3: Remote
) -> None:
    """The folder in layers:0,2@FOLDER goes to the storage, and the layers are in the key of trainings."""
    rule, folder = "layers:0,2", Path(shutil.copytree(prepared_folder, tmp_path / "run" / "prepared"))
    other = Path(shutil.copytree(encoder_folder, tmp_path / "others" / "other"))
    described = json.loads((folder / "prepared.json").read_text())
    store = ArtifactStore(tmp_path / "store", s3 / "store")
    write_json(folder / "prepared.json", {**described, "student": f"{rule}@{other}"})
    files = replace(share_run(store, tmp_path / "run", s3 / "runs" / "r", folder), node="the driver's")
    (tmp_path / "others").rename(tmp_path / "others of the driver")
    files.provide({"student": f"{rule}@{other}", "pca": "elsewhere"})
    assert other.resolve().is_relative_to(store.root)
    assert {n: p.read_bytes() for n, p in files_in(other).items()} == {
        n: p.read_bytes() for n, p in files_in(encoder_folder).items()
    }
    other.unlink()
    other.mkdir()
    module._linked.cache_clear()
    with pytest.raises(InputError, match=f"{other}: on one of the nodes another folder"):
        files.provide({"student": f"{rule}@{other}"})
    keys = {files.content}
    for changed in (
        {"student": "layers:1@/elsewhere/other"},
        {"student": f"{rule}@/elsewhere/other", "pooling": "cls"},
    ):
        write_json(folder / "prepared.json", described | changed)
        keys.add(content_key(folder))
    assert len(keys) == 3
    write_json(folder / "prepared.json", described | {"student": f"{rule}@/elsewhere/other"})
    assert content_key(folder) == files.content  # another machine's path, the same training


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
    assert not job.folder.exists() and not (sites.run / job.model).exists()
    sites.node("driver")
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
    sites.node("driver")
    got: list[Any] = []
    # Without a remote task: there is nothing left to do.
    monkeypatch.setattr("ray.remote", lambda **_: pytest.fail("a job was started"))
    left = finish_jobs([job], prepared_folder, corpus, ALONE, got.append)
    assert left == [] and [o.failed for o in got] == [""] and (sites.run / "students" / "key" / "modules.json").exists()


def test_a_student_that_the_runs_copy_has_deleted_is_made_again(
    tmp_path: Path, s3: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A worker has finished it; the driver was killed before it had it, and the next one's run is without it.
    run, remote = tmp_path / "r", s3 / "runs" / "r"
    copy = TrainingCopy(run / "trials" / "key", remote / "trials/key", "ab" * 20)
    for name in ("trials/key/encoded.json", f"trials/key/{copy.mark}", "students/key/modules.json"):
        remote.write(name, b"{}")
    run.mkdir()
    (run / "config.json").write_text("{}")
    model, remote_model = run / "students" / "key", remote / "students/key"
    with monkeypatch.context() as during:
        listed, of_storage = remote_model.list(), Remote.list
        during.setattr(Remote, "list", lambda of: listed if of == remote_model else of_storage(of))
        remote_model.delete("modules.json")  # after it was listed
        copy.collect(model, remote_model)
        remote_model.write("modules.json", b"{}")
    FolderCopy(run, remote, copied=copied).push()
    assert not remote_model.list()
    copy.collect(model, remote_model)
    assert Encoded.load(copy.folder) is None and not model.exists()


def on_a_node(sites: Sites, task: ShardTask, shards: list[Shard]) -> None:
    """As `run_pool` does with an actor on another node."""
    worker = ShardWorker(pickle.loads(pickle.dumps(task)), pickle.loads(pickle.dumps(sites.node("one"))))  # noqa: S301
    for shard, start, stop in shards:
        batch = {"shard": np.array([shard]), "start": np.array([start]), "stop": np.array([stop])}
        said = worker(batch)
        assert said.pop("peak_mb")[0] > 0
        assert said == {"shard": [shard], "count": [stop - start], "error": [""]}
        assert not any((task.folder / name).exists() for name in task.files(shard))
    sites.node("driver")
    for shard, _, _ in shards:
        _collect_shard(task, shard, sites.driver)


@pytest.mark.parametrize("kind", ["embeddings", "tokens", "copies"])
def test_shards_of_another_node_reach_the_driver(
    sites: Sites, kind: str, encoder_folder: Path, corpus: Corpus, tmp_path: Path
) -> None:
    store = sites.driver.store.root
    sentences = SentenceFile(next(store.glob("sentences-*")) / "sentences.arrow")
    folder = store / f"{kind.replace(' ', '-')}-{tmp_path.name}.partial"
    spec = EncoderSpec(str(encoder_folder)).absolute()

    def task(folder: Path) -> ShardTask:
        folder.mkdir(parents=True)
        if kind == "copies":
            return Copying(Synonym(), 0, sentences, corpus.train, folder)
        if kind == "tokens":
            return Tokenising(spec, sentences, folder)
        return TeacherEncoding(spec, sentences, folder, "cpu", "float16")

    away, here = task(folder), task(tmp_path / "here")
    shards = [(0, 0, 20), (1, 20, 33)]
    on_a_node(sites, away, shards)
    make = here.load()
    for shard in shards:
        make(*shard)
        for name in here.files(shard[0]):
            assert (folder / name).read_bytes() == (tmp_path / "here" / name).read_bytes()
    assert sites.driver.store.remote is not None
    unfinished = sites.driver.store.remote / folder.name.removesuffix(".partial")
    assert set(away.files(0)) | set(away.files(1)) <= set(unfinished.list())  # also for a driver that comes later


def test_a_node_that_cannot_have_an_artifact_says_so(sites: Sites) -> None:
    folder = sites.driver.store.root / "embeddings-y.partial"
    folder.mkdir()
    gone = sites.driver.store.root / "sentences-000000000000000000000000" / "sentences.arrow"
    spec = load_prepared(sites.prepared).teacher.absolute()
    worker = ShardWorker(TeacherEncoding(spec, SentenceFile(gone), folder, "cpu", "float16"), sites.node("one"))
    said = worker({"shard": np.array([0]), "start": np.array([0]), "stop": np.array([9])})
    assert "sentences-000000000000000000000000: not in the storage" in said["error"][0]
