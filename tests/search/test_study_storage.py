"""A study in a database: which URLs there are, whose study is whose, and that no secret is printed."""

from __future__ import annotations

from pathlib import Path

import pytest
from postgres_server import PostgresServer
from simulated import Simulation, content, space_of
from typer.testing import CliRunner

from distilbench.cli import app
from distilbench.errors import InputError
from distilbench.search.study_storage import (
    checked_url,
    claim_place,
    latest_study,
    open_run_study,
)

SECRET = "hunter2"


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("postgresql://me@db.example:5433/studies", "postgresql+psycopg://me@db.example:5433/studies"),
        ("postgresql+psycopg:///?service=studies", "postgresql+psycopg:///?service=studies"),
        ("postgresql://h/d?passfile=/x/pass", "postgresql+psycopg://h/d?passfile=%2Fx%2Fpass"),  # the file's name only
        ("sqlite:////somewhere/all.db", "sqlite:////somewhere/all.db"),
    ],
)
def test_urls(given: str, kept: str) -> None:
    assert checked_url(given) == kept == checked_url(kept)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (f"postgresql://me:{SECRET}@h/d", "a password in a URL"),
        (f"postgresql://h/d?password={SECRET}", "a password in a URL"),
        (f"postgresql://me:{SECRET}@h:port/d", "no database's URL"),
        (f"host=h password={SECRET}", "no database's URL"),
        (f"me:{SECRET}@h", "no database's URL"),
        ("studies", "no database's URL"),
        ("oracel://h/d", "no database's URL"),
    ],
)
def test_refused_urls(given: str, reason: str) -> None:
    with pytest.raises(InputError, match=f"--study .*{reason}") as raised:
        checked_url(given)
    assert SECRET not in str(raised.value)


def test_the_command_says_it_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    environment = {"DISTILBENCH_STUDY": f"postgresql://me:{SECRET}@h/d"}
    done = CliRunner().invoke(app, ["sweep", "--method", "mcr2"], env=environment)
    assert done.exit_code == 2 and done.stderr.startswith("error: --study postgresql://***@h/d: a password")
    assert SECRET not in done.output and len(done.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_database_that_does_not_answer(tmp_path: Path) -> None:
    place = claim_place(tmp_path, "postgresql://127.0.0.1:1/d", "r")
    with pytest.raises(InputError, match=r"--study postgresql\+psycopg://127.0.0.1:1/d: .*refused"):
        open_run_study(tmp_path, place, "r", ["maximize"])


@pytest.fixture(params=["shared", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of the studies: an SQLite file for several, or PostgreSQL."""
    if request.param == "shared":
        return f"sqlite:///{tmp_path}/all.db"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.create("t" + request.node.name[:30].translate(str.maketrans("[]-", "___")).lower())


def begun(run: Path, url: str | None, trials: int = 3) -> Simulation:
    """A search in a run's folder."""
    run.mkdir(parents=True, exist_ok=True)
    study = open_run_study(run, claim_place(run, url, run.name), run.name, ["maximize"])
    made = Simulation(study, space_of(run.parent), trials)
    made.sit(1)
    return made


def test_runs_of_one_name_share_a_database(tmp_path: Path, url: str) -> None:
    first, second = tmp_path / "a" / "r", tmp_path / "b" / "r"
    whole = content(begun(first, url).study)
    begun(second, url, 2)
    assert len(latest_study(first).trials) == 3 and len(latest_study(second).trials) == 2
    assert content(begun(first, None).study) == whole, "it is found again without the option"
    with pytest.raises(InputError, match=f"--study .*the study of {first}"):
        claim_place(first, f"sqlite:///{tmp_path}/other.db", "r")
