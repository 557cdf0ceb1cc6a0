"""The driver's copy of a run: what another machine finds of it, and whose it is."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from driver import kill_copy
from rich.console import Console

from distilbench.cluster import run_copy as module
from distilbench.cluster.run_copy import Owner, RunCopy, copied, run_copy
from distilbench.errors import InputError
from distilbench.events import Event
from distilbench.storage.remote import Remote, files_in
from distilbench.storage.store import ArtifactStore


class Machine:
    """A machine with folders of its own."""

    def __init__(self, root: Path, storage: Remote) -> None:
        self.root, self.storage = root, storage
        self.run, self.report = root / "runs" / "r", root / "reports" / "r"

    def copy(self) -> RunCopy:
        """A driver's on this machine."""
        self.console = Console(record=True, quiet=False, file=open("/dev/null", "w"), soft_wrap=True)
        return RunCopy(self.storage, ArtifactStore(self.root / "store"), self.run, self.report, self.console)

    def write(self, **files: str) -> None:
        for name, text in files.items():
            path = self.run / name.replace("__", "/").replace("_DOT_", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def files(self) -> dict[str, str]:
        return {n: p.read_text() for n, p in files_in(self.run).items() if not n.endswith(".db")}


@pytest.fixture
def machines(s3: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Machine, Machine]:
    monkeypatch.setattr(module, "BEAT_S", 0.2)
    monkeypatch.setattr(module, "DEAD_S", 2.0)
    monkeypatch.setattr(module, "LOOK_S", 0.1)
    monkeypatch.setattr(module, "EVERY_S", 0.3)
    return Machine(tmp_path / "one", s3), Machine(tmp_path / "two", s3)


def wait(condition: Callable[[], object]) -> None:
    while not condition():  # pytest's timeout ends it
        time.sleep(0.05)


def study(run: Path, *values: int) -> None:
    run.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(run / "study.db")) as database, database:
        database.execute("create table if not exists trials (number integer)")
        database.executemany("insert into trials values (?)", [(v,) for v in values])


def numbers(run: Path) -> list[int]:
    with closing(sqlite3.connect(run / "study.db")) as database:
        return [row[0] for row in database.execute("select number from trials")]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("config.json", True),
        ("trials.jsonl", True),
        ("mcr2/study.db", True),
        ("study.db-journal", False),
        ("students/a/1_Pooling/config.json", True),
        ("students/a.partial/config.json", False),
        ("trials/00000/rung-1.safetensors", False),  # the workers copy these
        ("mcr2/confirm/00000-seed1/rungs.json", False),
        ("prepared/prepared.json", True),
        ("tune/x/params.json", False),
        (".config.json.abc.tmp", False),
        ("owner.json", False),
    ],
)
def test_what_is_copied(name: str, expected: bool) -> None:
    assert copied(name) is expected


@pytest.mark.slow
def test_a_lost_machines_run_is_found_by_another(machines: tuple[Machine, Machine]) -> None:
    one, two = machines
    first = one.copy()
    first.take()
    one.write(config_DOT_json="{}", trials_DOT_jsonl='{"n": 0}\n', students__a__modules_DOT_json="[]", tune__x="no")
    study(one.run, 0)
    first.start()
    first(Event("stage", "search"))
    wait(lambda: "study.db" in first.remote.list())
    study(one.run, 1)
    one.write(trials_DOT_jsonl='{"n": 0}\n{"n": 1}\n{"n": 2')  # a line is being written
    (one.run / "students" / "a" / "modules.json").unlink()
    wait(lambda: first.remote.read("trials.jsonl") == b'{"n": 0}\n{"n": 1}\n')
    wait(lambda: "students/a/modules.json" not in first.remote.list())
    kill_copy(first)

    began = time.monotonic()
    second = two.copy()
    second.take()
    assert time.monotonic() - began > 0.5  # the first one might have been alive
    assert "whether it is alive" in two.console.export_text()
    assert two.files() == {"config.json": "{}", "trials.jsonl": '{"n": 0}\n{"n": 1}\n'}
    assert numbers(two.run) == [0, 1]
    second.start()
    second.end(whole=True)


def test_a_record_is_never_without_its_trial_in_the_study(
    machines: tuple[Machine, Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Killed after any file that it copies, the storage has no record of a trial that the study does not know.
    one, _ = machines
    copy = one.copy()
    copy.take()
    study(one.run, 0)
    one.write(config_DOT_json="{}", trials_DOT_jsonl='{"n": 0}\n', students__a__x="1")
    put, seen = Remote.put, []

    def watched(self: Remote, path: Path, name: str, *more: Any) -> None:
        put(self, path, name, *more)
        seen.append(name)
        study(one.run, len(seen))  # the search goes on meanwhile
        one.write(trials_DOT_jsonl=(one.run / "trials.jsonl").read_text() + json.dumps({"n": len(seen)}) + "\n")

    monkeypatch.setattr(Remote, "put", watched)
    copy._copy()
    assert seen.index("students/a/x") < seen.index("study.db") < seen.index("trials.jsonl")
    copy.remote.fetch_all(one.root / "back", ["study.db", "trials.jsonl"])
    recorded = [json.loads(line)["n"] for line in (one.root / "back" / "trials.jsonl").read_text().splitlines()]
    assert set(recorded) <= set(numbers(one.root / "back"))
    kill_copy(copy)


def test_unchanged_files_are_not_copied_again(
    machines: tuple[Machine, Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, _ = machines
    copy = one.copy()
    copy.take()
    one.write(config_DOT_json="{}", trials_DOT_jsonl="{}\n", students__a__model_DOT_safetensors="w" * (5 << 20))
    model = one.run / "students" / "a" / "model.safetensors"
    os.utime(model, (model.stat().st_mtime - 5,) * 2)  # S3 tells whole seconds
    copy._copy()
    put, seen = Remote.put, []
    monkeypatch.setattr(Remote, "put", lambda self, path, name, *more: (seen.append(name), put(self, path, name)))
    copy._copy()
    assert seen == []
    one.write(config_DOT_json="[]")
    copy._copy()
    assert seen == ["config.json"]
    kill_copy(copy)
    again = one.copy()  # a driver that is started again does not know what the last one has copied
    again._copy()
    assert "students/a/model.safetensors" not in seen


def test_a_second_driver_is_refused_while_the_first_is_alive(machines: tuple[Machine, Machine]) -> None:
    one, two = machines
    first = one.copy()
    first.take()
    second = two.copy()
    with pytest.raises(InputError, match=r"a driver on .* is at work on it"):
        second.take()
    assert not second.owner._thread.is_alive()
    first.start()
    first.end(whole=True)
    second = two.copy()
    second.take()  # at once: the first one has said that it ended
    assert "waiting" not in two.console.export_text()
    kill_copy(second)


def test_the_same_machine_goes_on_at_once_with_its_newer_files(machines: tuple[Machine, Machine]) -> None:
    one, _ = machines
    first = one.copy()
    first.take()
    one.write(config_DOT_json="{}", trials_DOT_jsonl="{}\n")
    first._copy()
    kill_copy(first)
    one.write(trials_DOT_jsonl="{}\n{}\n")  # later than the last copy
    second = one.copy()
    second.take()
    assert "waiting" not in one.console.export_text() and one.files()["trials.jsonl"] == "{}\n{}\n"
    kill_copy(second)


def test_a_machine_whose_run_went_on_elsewhere_takes_what_is_newer(machines: tuple[Machine, Machine]) -> None:
    one, two = machines
    for machine, text in ((one, "{}\n"), (two, "{}\n{}\n")):
        copy = machine.copy()
        copy.take()
        machine.write(config_DOT_json="{}", trials_DOT_jsonl=text)
        copy.start()
        copy.end(whole=True)
    assert one.files()["trials.jsonl"] == "{}\n"
    back = one.copy()
    back.take()
    assert one.files()["trials.jsonl"] == "{}\n{}\n"
    kill_copy(back)


def test_another_run_of_the_same_name_is_not_overwritten(machines: tuple[Machine, Machine]) -> None:
    one, two = machines
    first = one.copy()
    first.take()
    one.write(config_DOT_json="{}")
    first.start()
    first.end(whole=True)
    two.write(config_DOT_json='{"another": "run"}')
    second = two.copy()
    with pytest.raises(InputError, match="another run of this name"):
        second.take()
    assert two.files() == {"config.json": '{"another": "run"}'}
    third = one.copy()
    third.take()  # nobody holds it
    kill_copy(third)


@pytest.mark.slow
def test_a_driver_that_was_taken_over_stops(machines: tuple[Machine, Machine]) -> None:
    one, two = machines
    first = one.copy()
    first.take()
    first.owner._over.set()  # cut off from the network: no heartbeat
    first.owner._thread.join()
    second = two.copy()
    second.take()
    first.owner = Owner(first.remote, one.root / "note", one.console)  # and back
    first.owner._over.clear()
    first.owner._thread.start()
    wait(lambda: first.owner.lost)
    with pytest.raises(InputError, match="has taken the run over"):
        first(Event("stage", "confirm"))
    one.write(config_DOT_json="stale")
    first.start()
    first.end(whole=True)
    assert first.remote.read("config.json") is None
    kill_copy(second)


def test_reports_are_copied_and_old_pages_deleted(machines: tuple[Machine, Machine]) -> None:
    one, _ = machines
    with run_copy(one.storage, ArtifactStore(one.root / "store"), one.run, one.report, Console(quiet=True)) as copy:
        assert copy is not None
        copy.start()
        one.report.mkdir(parents=True)
        (one.report / "index.html").write_text("1")
        (one.report / "old.html").write_text("1")
        copy(Event("stage", "search"))
        wait(lambda: (one.storage / "reports" / "r").list())
        (one.report / "old.html").unlink()
    assert set((one.storage / "reports" / "r").list()) == {"index.html"}


def test_trainings_that_nobody_goes_on_with_are_deleted(machines: tuple[Machine, Machine]) -> None:
    one, _ = machines
    copy = one.copy()
    for number in ("00000", "00001", "00002"):
        (copy.remote / "trials" / number).write("rungs.json", b"{}")
    (copy.remote / "confirm" / "00000-seed1").write("rungs.json", b"{}")
    copy.forget(one.run / "trials" / "00001")
    copy._copy()
    assert {n.split("/")[1] for n in (copy.remote).list()} == {"00000", "00002", "00000-seed1"}
    copy.keep_trainings(one.run, {"00002"})
    assert set(copy.remote.list()) == {"trials/00002/rungs.json", "confirm/00000-seed1/rungs.json"}


def test_a_folder_that_is_lost_under_a_driver_does_not_empty_its_copy(machines: tuple[Machine, Machine]) -> None:
    one, _ = machines
    copy = one.copy()
    one.write(config_DOT_json="{}", trials_DOT_jsonl="{}\n")
    copy._copy()
    there = set(copy.remote.list())
    shutil.rmtree(one.run)
    copy._copy()
    assert set(copy.remote.list()) == there == {"config.json", "trials.jsonl"}
