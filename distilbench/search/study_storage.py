"""The storage of a run's study: an SQLite file in its folder, or any database that Optuna knows, by its SQLAlchemy URL.

`study.json` in the run says which database, and under which name the study is there: the run's own and some random digits, so
that several projects may share one. A password is never in it.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import optuna
import sqlalchemy.exc
from optuna.exceptions import StorageInternalError
from sqlalchemy.engine import make_url

from distilbench.errors import InputError
from distilbench.search.study import open_study, sqlite_url
from distilbench.storage.files import write_json
from distilbench.storage.retry import reason_of

FILE, SQLITE = "study.json", "study.db"
SECRET = re.compile(r"passw|pwd|secret|token", re.IGNORECASE)


class StudyPlace(NamedTuple):
    """The database that a study is in, and its name there; None: the only study of a run's own file."""

    url: str
    name: str | None


def safe_text(url: str) -> str:
    """The text with user, password and query removed, safe to print."""
    without_user = re.sub(r"(?<=//).*@", "***@", url, flags=re.DOTALL).partition("?")[0]
    return "***" if "//" not in url and ("@" in url or SECRET.search(url)) else without_user


def checked_url(text: str) -> str:
    """The SQLAlchemy URL of a database; one with a secret in it, or without its driver, is refused without showing any."""
    expected = "expected a SQLAlchemy URL such as postgresql+psycopg://user@host/database"
    try:
        url = make_url(text)
        if url.password is not None or any(SECRET.search(key) for key in url.query):
            raise InputError(
                f"--study {safe_text(text)}: a password in a URL would be seen by others; expected it in PGPASSWORD, "
                "~/.pgpass or a service file"
            )
        if url.drivername == "postgresql":
            url = url.set(drivername="postgresql+psycopg")
        url.get_dialect().import_dbapi()
    except (sqlalchemy.exc.ArgumentError, ValueError):
        raise InputError(f"--study {safe_text(text)}: no database's URL; {expected}") from None
    except ImportError as error:
        raise InputError(f"--study {safe_text(text)}: its driver is not installed ({error}); {expected}") from None
    if url.get_backend_name() == "sqlite" and url.database not in (None, "", ":memory:"):
        url = url.set(database=str(Path(url.database).absolute()))
    return url.render_as_string()


def study_place(run: Path) -> StudyPlace | None:
    """The database of a run's study; None if it has none."""
    file = run / FILE
    if not file.exists():
        return StudyPlace(sqlite_url(run / SQLITE), None) if (run / SQLITE).exists() else None
    try:
        saved: dict[str, Any] = json.loads(file.read_text())
        return StudyPlace(checked_url(saved["url"]), str(saved["name"]))
    except (ValueError, LookupError, TypeError):
        raise InputError(f'{file}: expected {{"name": ..., "url": ...}}, where the study of the run is') from None


def claim_place(run: Path, url: str | None, name: str) -> StudyPlace:
    """Bind the study of `run` to a database: the one it has, else `url` (None: in its folder), called after `name`."""
    place = study_place(run)
    if place is not None and url is not None and place.url != checked_url(url):
        raise InputError(
            f"--study {safe_text(url)}: the study of {run} is in {safe_text(place.url)}; expected the same or another --name"
        )
    if place is None and url is not None:
        place = StudyPlace(checked_url(url), f"{name} ({secrets.token_hex(4)})")
        write_json(run / FILE, place._asdict())
    return place or StudyPlace(sqlite_url(run / SQLITE), None)


def open_run_study(run: Path, place: StudyPlace, name: str, directions: Sequence[str]) -> optuna.Study:
    """The study at `place`, made where there is none; in a run's own file it is called `name`."""
    storage = _storage(place.url)
    existing = [study.study_name for study in storage.get_all_studies()] if place.name is None else [place.name]
    return open_study(storage, existing[-1] if existing else name, directions)


def latest_study(run: Path) -> optuna.Study:
    """The study of a run's folder."""
    place = study_place(run)
    if place is None:
        raise InputError(f"{run}: no {SQLITE} or {FILE} in it; expected the folder of a sweep")
    storage = _storage(place.url)
    names = [s.study_name for s in storage.get_all_studies() if place.name in (None, s.study_name)]
    if not names:
        raise InputError(f"{run}: its study {place.name!r} is not in {safe_text(place.url)}")
    return optuna.load_study(study_name=names[-1], storage=storage)


def _storage(url: str) -> optuna.storages.RDBStorage:
    try:
        return optuna.storages.RDBStorage(url.replace("{", "{{").replace("}", "}}"))
    except (sqlalchemy.exc.SQLAlchemyError, StorageInternalError, RuntimeError) as error:
        reason = reason_of(error)
        raise InputError(f"--study {safe_text(url)}: {reason}; expected a database that answers") from None
