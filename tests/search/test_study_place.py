"""A study in a database: which URLs there are, whose study is whose, and that a database which goes away is waited for."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import optuna
import psycopg
import pytest
import sqlalchemy.exc
from optuna.storages import RDBStorage
from postgres_server import PASSWORD, SECRET_USER, PostgresServer
from run_command import LONG, Command, make_sweep, scored, slow, told, wait_for
from simulated import YAML, Simulation, content, space_of
from sqlalchemy import Engine, event
from typer.testing import CliRunner

from distilbench.cli import app
from distilbench.errors import InputError
from distilbench.search import study_place
from distilbench.search.earlier import carry_over, latest_study, set_aside, take_over
from distilbench.search.study_place import FILE, PatientStorage, check_place, claim_place, database_url, known_place
from distilbench.storage import patience
from distilbench.storage.files import write_json
from distilbench.storage.patience import StorageGone

CONFIG: dict[str, Any] = {"method": "mcr2", "data": "d", "budget.steps": 90, "parameters": {}, "fixed": {}, "seed": 0}
SECRET = "hunter2"


# URLs


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("postgresql://me@db.example:5433/studies", "postgresql+psycopg://me@db.example:5433/studies"),
        ("postgresql+psycopg:///?service=studies", "postgresql+psycopg:///?service=studies"),
        ("postgresql://h/d?passfile=/x/pass", "postgresql+psycopg://h/d?passfile=%2Fx%2Fpass"),  # the file's name only
        ("postgresql://h/d?sslmode=require", "postgresql+psycopg://h/d?sslmode=require"),
        ("sqlite:////somewhere/all.db", "sqlite:////somewhere/all.db"),
    ],
)
def test_urls(given: str, kept: str) -> None:
    assert database_url(given) == kept == database_url(kept)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            f"postgresql://me:{SECRET}@h/d",
            "--study postgresql://me:***@h/d: a password in a URL would be seen by others; ",
        ),
        (f"postgresql://h/d?password={SECRET}", "--study postgresql://h/d?password=***: a password in a URL"),
        (f"postgresql://h/d?sslpassword={SECRET}", "--study postgresql://h/d?sslpassword=***: a password in a URL"),
        (
            f"postgresql://me:{SECRET}@h:port/d",
            "--study postgresql://***@h:port/d: no database's URL; expected a SQLAlchemy",
        ),
        (
            f"postgresql://me:{SECRET}?x@h:port/d?password={SECRET}",
            "--study postgresql://***@h:port/d: no database's URL",
        ),
        (f"host=h password={SECRET}", "--study ***: no database's URL"),
        (f"me:{SECRET}@h", "--study ***: no database's URL"),
        ("studies", "--study studies: no database's URL; expected a SQLAlchemy URL such as postgresql+psycopg://"),
        ("oracel://h/d", "--study oracel://h/d: no database of SQLAlchemy's is called 'oracel'; expected"),
        ("sqlite://", "--study sqlite://: a database in memory ends with the command; expected"),
        ("postgresql+aiopg9://h/d", "--study postgresql+aiopg9://h/d: no database of SQLAlchemy's is called"),
    ],
)
def test_refused_urls(given: str, message: str) -> None:
    with pytest.raises(InputError) as raised:
        database_url(given)
    assert str(raised.value).startswith(message) and SECRET not in str(raised.value)


def test_a_driver_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg

    def absent() -> None:
        raise ModuleNotFoundError("No module named 'psycopg'")

    monkeypatch.setattr(PGDialect_psycopg, "import_dbapi", absent)
    message = (
        r"--study postgresql://h/d: its driver is not installed \(No module named 'psycopg'\); expected pip install "
    )
    with pytest.raises(InputError, match=message + r"'distilbench\[postgres\]'"):
        database_url("postgresql://h/d")


def test_the_command_says_it_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for arguments, environment in (
        (["--study", f"postgresql://me:{SECRET}@h/d"], {}),
        ([], {"DISTILBENCH_STUDY": f"postgresql://me:{SECRET}@h/d"}),
    ):
        done = CliRunner().invoke(app, ["sweep", "--method", "mcr2", *arguments], env=environment)
        assert done.exit_code == 2 and done.stderr.startswith("error: --study postgresql://me:***@h/d: a password")
        assert SECRET not in done.output and len(done.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_connection_that_is_refused(tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(InputError, match=r"--study postgresql\+psycopg://127.0.0.1:1/d: OperationalError: .*refused"):
        check_place(tmp_path / "r", "postgresql://127.0.0.1:1/d")
    assert time.monotonic() - began < 5 and not (tmp_path / "r").exists()


# Whose study is whose


@pytest.fixture(autouse=True)
def files_without_fsync() -> Iterator[None]:
    """SQLite's, which would be most of the time here."""

    def ready(connection: Any, _: Any) -> None:
        if isinstance(connection, sqlite3.Connection):
            connection.execute("PRAGMA synchronous=OFF")

    event.listen(Engine, "connect", ready)
    yield
    event.remove(Engine, "connect", ready)


@pytest.fixture(params=["shared", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of the studies: an SQLite file for several, or PostgreSQL."""
    if request.param == "shared":
        return f"sqlite:///{tmp_path}/all.db"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.create("t" + request.node.name[:30].translate(str.maketrans("[]-", "___")).lower())


def swept(run: Path, url: str | None, wanted: int = 8, begun: int | None = None) -> Simulation:
    """A sweep's folder; with `begun`, one that was interrupted after so many trials had begun."""
    run.mkdir(parents=True)
    write_json(run / "config.json", CONFIG)
    space = space_of(run.parent)
    study = claim_place(run, url, run.name).open(["maximize"])
    made = Simulation(study, space, wanted, lag=3)
    made.sit(2, 0, deadline=lambda: 0 if begun and len(made.study.trials) >= begun else float("inf"))
    return made


def test_runs_of_one_name_have_studies_of_their_own(tmp_path: Path, url: str) -> None:
    for project, wanted in (("a", 3), ("b", 5)):
        (tmp_path / project).mkdir()
        swept(tmp_path / project / "r", url, wanted)
    for project, wanted in (("a", 3), ("b", 5)):
        run = tmp_path / project / "r"
        check_place(run, url)
        check_place(run, None)
        place = known_place(run)
        assert place is not None and place == claim_place(run, None, "r") and not place.in_run
        assert len(place.open(["maximize"]).trials) == len(latest_study(run).trials) == wanted
        assert json.loads((run / FILE).read_text()) == {"name": place.name, "url": url}
    names = optuna.get_all_study_names(url)
    assert len(set(names)) == 2 and all(name.startswith("r (") for name in names)


@pytest.mark.slow
def test_an_extended_search_is_found_among_others(tmp_path: Path, url: str) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    begun = swept(tmp_path / "a" / "r", url, begun=5)
    other = swept(tmp_path / "b" / "r", url)
    run, space = tmp_path / "a" / "r", space_of(tmp_path, YAML.replace("choices: [4, 8]", "choices: [4, 8, 16]"))
    before = content(begun.study)
    for generation in (1, 2):
        carry_over(run, space, ["maximize"])
        study = latest_study(run)
        assert study.study_name.endswith(f", extended {generation}") and content(study) == before
    assert content(latest_study(tmp_path / "b" / "r")) == content(other.study)
    found = take_over(run, {**CONFIG, "seed": 3}, space)  # --warm-start
    assert len(found.history) == sum(t.state.is_finished() for t in begun.study.trials)


def test_what_is_set_aside_keeps_its_study_and_the_next_has_another(tmp_path: Path, url: str) -> None:
    run = tmp_path / "r"
    begun = swept(run, url)
    aside = set_aside(run, begun.space)
    assert known_place(run) is None and sorted(p.name for p in run.iterdir()) == [
        "before-1",
        "config.json",
        "earlier.json",
    ]
    assert content(latest_study(aside)) == content(begun.study)
    place = claim_place(run, None, "r")  # also without --study, where it was
    assert not place.in_run and place.url == url
    assert place.open(["maximize"]).trials == [] and len(latest_study(aside).trials) == 8


def test_a_study_stays_where_it_is(tmp_path: Path) -> None:
    own, shared = tmp_path / "own", tmp_path / "shared"
    first, second = f"sqlite:///{tmp_path}/one.db", f"sqlite:///{tmp_path}/two.db"
    swept(own, None, 2)
    swept(shared, first, 2)
    with pytest.raises(InputError) as raised:
        check_place(own, first)
    told = f"--study {first}: the study of {own} is in {own}/study.db; expected the same or another --name"
    assert str(raised.value) == told
    with pytest.raises(InputError) as raised:
        check_place(shared, second)
    assert str(raised.value).startswith(f"--study {second}: the study of {shared} is in {first}; expected the same or ")
    assert f"in {shared / FILE} too" in str(raised.value)
    assert not (tmp_path / "two.db").exists()


def test_a_study_that_is_not_in_its_database(tmp_path: Path) -> None:
    run, url = tmp_path / "r", f"sqlite:///{tmp_path}/all.db"
    swept(run, url, 2)
    (tmp_path / "all.db").unlink()
    with pytest.raises(InputError, match=rf"{run}: its study 'r \(\w+\)' is not in {url}$"):
        latest_study(run)
    (run / "trials.jsonl").write_text("{}\n")
    with pytest.raises(InputError, match=r"is not in .* although it has finished trials; expected the database that "):
        claim_place(run, None, "r").open(["maximize"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", 'study.json: expected {"name": ..., "url": ...}'),
        ("[]", 'study.json: expected {"name": ..., "url": ...}'),
        ('{"name": "r", "url": 3}', 'study.json: expected {"name": ..., "url": ...}'),
        ('{"name": "r", "url": "postgresql://a:hunter2@h/d"}', "study.json: postgresql://a:***@h/d: a password in"),
    ],
)
def test_a_study_json_that_is_none(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / FILE).write_text(content)
    with pytest.raises(InputError) as raised:
        known_place(tmp_path)
    assert message in str(raised.value) and SECRET not in str(raised.value)


# PostgreSQL


def test_a_password_is_in_the_environment_and_nowhere_else(
    tmp_path: Path, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    postgres.create("guarded")
    url = postgres.url_of("guarded", SECRET_USER)
    monkeypatch.setenv("PGPASSFILE", "/nonexistent")
    with pytest.raises(InputError, match="no password supplied"):
        check_place(tmp_path / "r", url)
    monkeypatch.setenv("PGPASSWORD", "wrong")
    with pytest.raises(
        InputError, match=r"password authentication failed for user .* expected a database that answers"
    ):
        check_place(tmp_path / "r", url)
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    check_place(tmp_path / "r", url)
    swept(tmp_path / "r", url, 2)
    kept = [path.read_text() for path in (tmp_path / "r").rglob("*") if path.is_file()]
    assert kept and not any(PASSWORD in text for text in kept)
    monkeypatch.setenv("PGPASSWORD", "wrong")  # of a run that has begun too, that is said at once
    began = time.monotonic()
    with pytest.raises(InputError, match="password authentication failed"):
        check_place(tmp_path / "r", None)
    assert time.monotonic() - began < 5
    with pytest.raises(InputError, match='database "absent" does not exist'):
        check_place(tmp_path / "s", postgres.url_of("absent"))


def test_runs_that_begin_at_the_same_moment_in_an_empty_database(tmp_path: Path, postgres: PostgresServer) -> None:
    url, failed = postgres.create("empty"), list[BaseException]()

    def begin(number: int) -> None:
        run = tmp_path / str(number)
        run.mkdir()
        try:
            claim_place(run, url, "r").open(["maximize"]).set_user_attr("number", number)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=begin, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert [latest_study(tmp_path / str(n)).user_attrs["number"] for n in range(6)] == list(range(6))


def outage(server: PostgresServer, seconds: float) -> threading.Timer:
    """The server crashes now, and is back after a while."""
    server.stop("immediate")
    back = threading.Timer(seconds, server.start)
    back.start()
    return back


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_database_that_crashes_in_the_middle_changes_nothing(
    tmp_path: Path, postgres: PostgresServer, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "b").mkdir()
    plain = swept(tmp_path / "a", None, 16)
    run = tmp_path / "b" / "r"
    run.mkdir()
    study = claim_place(run, postgres.create("outage"), "r").open(["maximize"])
    made = Simulation(study, space_of(tmp_path), 16, lag=3)
    fallen: list[threading.Timer] = []

    def fall() -> float:
        if not fallen and len(study.get_trials(deepcopy=False)) >= 6:
            fallen.append(outage(postgres, 1.5))
        return float("inf")

    made.sit(2, 0, deadline=fall)
    fallen[0].join()
    assert content(made.study) == content(plain.study)
    printed = "".join(capsys.readouterr().out.split())
    assert printed.count("waitingforit(") >= 1 and printed.count(":itisback") >= 1


@pytest.mark.slow
def test_a_database_that_does_not_come_back_is_said(
    tmp_path: Path, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "r"
    study = swept(run, postgres.create("gone"), 3).study
    monkeypatch.setattr(study_place, "DATABASE_LIMIT_S", 1.2)
    study._storage._backend.limit_s = 1.2
    postgres.stop()
    try:
        for act in (lambda: study.get_trials(), lambda: check_place(run, None), lambda: latest_study(run)):
            with pytest.raises(
                StorageGone, match=r"^the study in postgresql.*: storage failed for 1 s \(Operational.*refused"
            ):
                act()
        # A run that has not begun does not wait.
        with pytest.raises(InputError, match=r"^--study postgresql\+psycopg://tester@127.0.0.1:\d+/gone: Operational"):
            check_place(tmp_path / "s", postgres.url_of("gone"))
        monkeypatch.setattr(study_place, "DATABASE_LIMIT_S", 30)
        timer = threading.Timer(0.6, postgres.start)
        timer.start()
        assert len(latest_study(run).trials) == 3
    finally:
        timer.join()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["_create_new_trial", "set_trial_state_values", "set_trial_user_attr"])
def test_an_answer_that_was_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    plain = swept(tmp_path / "a", None)
    real: Callable[..., Any] = getattr(RDBStorage, name)
    calls = []

    def losing(*given: Any, **named: Any) -> Any:
        answer = real(*given, **named)
        calls.append(1)
        if len(calls) % 3 == 1:
            raise sqlalchemy.exc.OperationalError("COMMIT", None, psycopg.OperationalError("connection lost"))
        return answer

    if name in ("_create_new_trial", "set_trial_state_values"):
        monkeypatch.setattr(RDBStorage, name, losing)
    else:  # these are taken when the class is made
        monkeypatch.setattr(PatientStorage, name, study_place._repeatable(losing))
    lost = swept(tmp_path / "b", None)
    assert len(calls) >= 8 and content(lost.study) == content(plain.study)


def test_the_disk_of_a_database_that_is_full_is_said_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = claim_place(tmp_path, f"sqlite:///{tmp_path}/all.db", "r").open(["maximize"])

    def full(*given: Any) -> None:
        reason = 'could not extend file "base/16389/16411": No space left on device'
        raise sqlalchemy.exc.OperationalError("INSERT", None, psycopg.errors.DiskFull(reason))

    monkeypatch.setattr(RDBStorage, "set_trial_state_values", full)
    with pytest.raises(StorageGone, match="make room, then repeat the command"):
        study.add_trial(optuna.trial.create_trial(state=optuna.trial.TrialState.RUNNING))
        study._storage.set_trial_state_values(1, optuna.trial.TrialState.COMPLETE, [1.0])


# Whole sweeps


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_a_sweep_in_a_database(
    tmp_path: Path, data_folder: Path, encoder_folder: Path, store: Path, cluster: None, postgres: PostgresServer
) -> None:
    url = postgres.create("sweeps")
    space = (
        "method: mcr2\nbudget: {trials: 2, steps: 8, rungs: 2, eta: 2, confirm: {seeds: 1}}\n"
        "parameters:\n  lr: {low: 0.0001, high: 0.01, log: true}\n"
        "fixed: {batch_size: 16, output_dim: 4, clusters: 4, lambda: 1}\n"
    )
    sweep = make_sweep(tmp_path, data_folder, encoder_folder, store, 8, space=space)
    sweep.done("--study", url)
    assert known_place(sweep.run).url == url and not (sweep.run / "study.db").exists()  # type: ignore[union-attr]
    by_number = sorted(sweep.trials(), key=lambda record: record.number)
    assert [t.state.name for t in latest_study(sweep.run).trials] == [r.state for r in by_number]
    assert len(sweep.trials()) == 2 and latest_study(sweep.run).trials[0].state.name == "COMPLETE"
    assert "3 trials" in sweep.done("--trials", "3")  # without --study it is found
    assert len(latest_study(sweep.run).trials) == len(sweep.trials()) == 3
    assert f"the study of {sweep.run} is in {url}" in sweep.refused("--study", "sqlite:////elsewhere.db")
    for command in (["status", str(sweep.run)], ["best", str(sweep.run)]):
        assert CliRunner().invoke(app, command).exit_code == 0


@slow
@pytest.mark.timeout(600)
def test_a_sweep_whose_database_crashes(
    tmp_path: Path, data_folder: Path, encoder_folder: Path, store: Path, whole: Command, postgres: PostgresServer
) -> None:
    """The same trials, scores and students as of a sweep that nothing interrupted, whose study was in a file."""
    url = postgres.create("crashes")
    sweep = make_sweep(tmp_path, data_folder, encoder_folder, store, LONG, "--study", url)
    driver = sweep.start()
    try:
        for trials in (1, 4):
            wait_for(lambda n=trials: driver.poll() is not None or ended(sweep) >= n)  # type: ignore[misc]
            assert driver.poll() is None, sweep.log()
            postgres.stop("immediate")
            time.sleep(8)
            assert driver.poll() is None, sweep.log()
            postgres.start()
        assert driver.wait(timeout=400) == 0, sweep.log()
    finally:
        driver.kill()
    said = " ".join(sweep.log().split())
    assert "waiting for it (" in said and "it is back" in said
    assert told(sweep.trials()) == told(whole.trials()) and told(sweep.confirmations()) == told(whole.confirmations())
    assert scored(sweep.scores()).values() and list(scored(sweep.scores()).values()) == list(
        scored(whole.scores()).values()
    )


def ended(sweep: Command) -> int:
    return len(sweep.trials()) if (sweep.run / "trials.jsonl").exists() else 0


def test_patience_is_longer_for_a_database(tmp_path: Path) -> None:
    assert known_place(tmp_path) is None
    assert claim_place(tmp_path, None, "r").limit_s is None and study_place.DATABASE_LIMIT_S > patience.LIMIT_S
