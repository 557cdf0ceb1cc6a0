"""Where a run's study is: an SQLite file in its folder, or a database that several machines, runs and projects share.

    distilbench sweep --method mcr2 --study postgresql+psycopg://db.example/studies

`study.json` in the run says which database, and under which name the run's studies are there: the run's own and some random
digits, so that two projects may have runs of one name. A password is never in it: PGPASSWORD, ~/.pgpass or a service file
(`postgresql+psycopg:///?service=studies`) has it.

A database that goes away is waited for, whatever the study is asked at that moment.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
import rich
import sqlalchemy.exc
from optuna.exceptions import UpdateFinishedTrialError
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial, TrialState
from rich.markup import escape
from sqlalchemy import text
from sqlalchemy.engine import URL, make_url

from distilbench.errors import InputError
from distilbench.search.study import TAKEN, open_study, sqlite_url
from distilbench.storage.files import write_json
from distilbench.storage.patience import patiently, reason_of

FILE, SQLITE = "study.json", "study.db"
OPTION = "--study"
EXPECTED = "expected a SQLAlchemy URL such as postgresql+psycopg://user@host/database"

DATABASE_LIMIT_S = 600.0
"""How long a database may be gone: a managed one that moves to its standby, or is upgraded, is back within minutes."""

SECRET = re.compile(r"passw|pwd|secret|token", re.IGNORECASE)
CLIENT = {
    "application_name": "distilbench",
    # A host that is gone says nothing: libpq alone would wait for up to two hours.
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}
"""What PostgreSQL's client is told, where the URL does not say it."""
REFUSED = ("authentication failed", "does not exist", "no password supplied", "no pg_hba.conf entry", "denied")
"""What a server says to a client that comes in vain: waiting does not help."""


def database_url(url_text: str, what: str = OPTION) -> str:
    """A SQLAlchemy URL as it is kept: of PostgreSQL with psycopg, of SQLite with an absolute path.

    Raises:
        InputError: it is none, has a password or another secret in it, or its driver is not installed. The message begins
            with `what` and shows no secret.
    """
    try:
        url = make_url(url_text)
    except (sqlalchemy.exc.ArgumentError, ValueError):
        raise InputError(f"{what} {_without_secrets(url_text)}: no database's URL; {EXPECTED}") from None
    url_shown = _shown(url)
    if url.password is not None or any(SECRET.search(key) for key in url.query):
        raise InputError(
            f"{what} {url_shown}: a password in a URL would be seen by others; expected it in PGPASSWORD, ~/.pgpass or a "
            "service file, and the URL without it"
        )
    if url.drivername == "postgresql":
        url = url.set(drivername="postgresql+psycopg")
    try:
        url.get_dialect().import_dbapi()
    except sqlalchemy.exc.NoSuchModuleError:
        raise InputError(
            f"{what} {url_shown}: no database of SQLAlchemy's is called {url.drivername!r}; {EXPECTED}"
        ) from None
    except ImportError as error:
        hint = "pip install 'distilbench[postgres]'" if url.drivername == "postgresql+psycopg" else "its package"
        why = str(error).splitlines()[0]
        raise InputError(f"{what} {url_shown}: its driver is not installed ({why}); expected {hint}") from None
    if url.get_backend_name() == "sqlite":
        if not url.database or url.database == ":memory:":
            raise InputError(f"{what} {url_shown}: a database in memory ends with the command; {EXPECTED}")
        url = url.set(database=str(Path(url.database).absolute()))
    return url.render_as_string(hide_password=True)


def _shown(url: URL) -> str:
    """The URL without what is secret."""
    hidden = {key: "***" if SECRET.search(key) else value for key, value in url.query.items()}
    return url.set(query=hidden).render_as_string(hide_password=True).replace("%2A", "*")


def _without_secrets(url: str) -> str:
    """As much of what is no URL as can have no secret in it: what is before, and after, a user and a password."""
    if "//" not in url:
        return "***" if "@" in url or SECRET.search(url) else url
    head, separator, rest = url.rpartition("@")
    return (re.sub(r"(?<=//).*", "***@", head, flags=re.DOTALL) if separator else "") + rest.partition("?")[0]


class PatientStorage(RDBStorage):  # type: ignore[misc]
    """Optuna's, but it waits for its database for `limit_s` seconds (None: as for files), and says so.

    What was asked is asked again until it is answered. Where an answer was lost, it is seen whether what was asked has been
    done. That is sound where one process at a time writes to a study, as here.

    Raises:
        StorageGone: the database did not come back.
    """

    def __init__(self, url: str, what: str, limit_s: float | None) -> None:
        self.what, self.limit_s = what, limit_s
        connect = {}
        if url.startswith("postgresql+psycopg"):
            connect = {key: value for key, value in CLIENT.items() if key not in make_url(url).query}
        super().__init__(url.replace("{", "{{").replace("}", "}}"), engine_kwargs={"connect_args": connect})

    def wait(self, action: Callable[[], Any]) -> Any:
        """What `action` gives, once the database answers."""
        return _waited(action, self.what, self.limit_s)

    def set_trial_state_values(self, trial_id: int, state: TrialState, values: Sequence[float] | None = None) -> bool:
        """Once, also where the answer was lost."""
        tries = 0

        def tell() -> bool:
            nonlocal tries
            tries += 1
            try:
                return RDBStorage.set_trial_state_values(self, trial_id, state, values)
            except UpdateFinishedTrialError:
                if tries == 1 or RDBStorage.get_trial(self, trial_id).state != state:
                    raise
                return True

        return bool(self.wait(tell))

    def _count(self, study_id: int) -> int:
        """Trials of a study: Optuna's own count reads all of every one."""
        with self.engine.connect() as connection:
            query = text("SELECT COUNT(*) FROM trials WHERE study_id = :study")
            return int(connection.execute(query, {"study": study_id}).scalar_one())

    def _create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> FrozenTrial:
        """Once, also where the answer was lost."""
        count_before: int | None = None

        def create() -> FrozenTrial:
            nonlocal count_before
            if count_before is not None and self._count(study_id) > count_before:
                return RDBStorage.get_all_trials(self, study_id)[-1]
            count_before = self._count(study_id) if count_before is None else count_before
            return RDBStorage._create_new_trial(self, study_id, template_trial)

        return self.wait(create)


def _repeatable(plain: Callable[..., Any]) -> Callable[..., Any]:
    def repeatable(self: PatientStorage, *args: Any, **named: Any) -> Any:
        return self.wait(lambda: plain(self, *args, **named))

    return repeatable


for _name in (
    "set_study_user_attr set_study_system_attr get_study_id_from_name get_study_name_from_id get_study_directions "
    "get_study_user_attrs get_study_system_attrs get_all_studies get_trial_id_from_study_id_trial_number get_trial "
    "set_trial_intermediate_value set_trial_user_attr set_trial_system_attr _get_trials _set_trial_param"
).split():
    setattr(PatientStorage, _name, _repeatable(getattr(RDBStorage, _name)))


def _waited(action: Callable[[], Any], what: str, limit_s: float | None) -> Any:
    """`action()` when the database answers; the user is told where that takes long."""
    announced = False

    def tell(reason: str, seconds: float) -> None:
        nonlocal announced
        if seconds > 1.0 and not announced:
            announced = True
            rich.print(f"{escape(what)}: waiting for it ({escape(reason)})")

    result = patiently(action, limit_s, what=what, failing=tell)
    if announced:
        rich.print(f"{escape(what)}: it is back")
    return result


@dataclass(frozen=True)
class StudyPlace:
    """Where the studies of the run in `run` are: the one called `name`, and those that --extend has begun after it."""

    run: Path
    url: str
    name: str
    in_run: bool
    """Whether it is the run's SQLite file, which no other run is in."""

    @property
    def what(self) -> str:
        """What messages call it."""
        return str(self.run / SQLITE) if self.in_run else f"the study in {self.url}"

    @property
    def limit_s(self) -> float | None:
        """How long it may be gone; None: as long as files."""
        return None if self.in_run else DATABASE_LIMIT_S

    def storage(self, *, patient: bool = True) -> PatientStorage:
        """The database, waited for where it does not answer; with `patient` False that is refused at once.

        Raises:
            InputError: nothing answers there, or not with this user and database; or another Optuna made its tables.
        """

        def connect() -> PatientStorage:
            for left in (2, 1, 0):
                try:
                    return PatientStorage(self.url, self.what, self.limit_s)
                except (sqlalchemy.exc.IntegrityError, sqlalchemy.exc.ProgrammingError) as error:
                    if not left:  # else another run may have made the tables at this moment
                        raise InputError(f"{OPTION} {self.url}: {reason_of(error)}") from None
                except sqlalchemy.exc.OperationalError as error:
                    reason = reason_of(error)
                    if not self.in_run and (not patient or any(words in reason for words in REFUSED)):
                        raise InputError(f"{OPTION} {self.url}: {reason}; expected a database that answers") from None
                    raise
                except RuntimeError as error:
                    raise InputError(f"{self.what}: {' '.join(str(error).split())}") from None
            raise AssertionError("it has returned or raised")

        return _waited(connect, self.what, self.limit_s)

    def open(self, directions: Sequence[str]) -> optuna.Study:
        """The newest study; made where there is none.

        Raises:
            InputError: there is none in the database although the run has finished trials; or as `storage`.
        """
        storage = self.storage()
        newest = self.newest(storage)
        if newest is None and not self.in_run and (self.run / "trials.jsonl").exists():
            raise InputError(
                f"{self.run}: its study {self.name!r} is not in {self.url}, although it has finished trials; expected the "
                f"database that {FILE} was written for"
            )
        return _waited(lambda: open_study(storage, newest or self.name, directions), self.what, self.limit_s)

    def latest(self) -> optuna.Study:
        """The newest study.

        Raises:
            InputError: there is none; or as `storage`.
        """
        storage = self.storage()
        newest = self.newest(storage)
        if newest is None:
            raise InputError(f"{self.run}: its study {self.name!r} is not in {self.what.removeprefix('the study in ')}")
        return _waited(lambda: optuna.load_study(study_name=newest, storage=storage), self.what, self.limit_s)

    def studies(self, storage: RDBStorage) -> list[tuple[str, bool]]:
        """Name of each study, oldest first, and whether all trials of the one before it are in it: it says so last."""
        studies = sorted(storage.get_all_studies(), key=lambda study: study._study_id)
        if not self.in_run:
            studies = [s for s in studies if s.study_name == self.name or s.study_name.startswith(self.later(""))]
        return [(s.study_name, number == 0 or TAKEN in s.user_attrs) for number, s in enumerate(studies)]

    def newest(self, storage: RDBStorage) -> str | None:
        """The newest study that is whole; an SQLite file's may have another name, where the folder was renamed."""
        whole = [name for name, is_whole in self.studies(storage) if is_whole]
        return whole[-1] if whole else None

    def later(self, generation: int | str) -> str:
        """What the study is called that --extend begins."""
        return f"{self.name}, extended {generation}"


def study_file(run: Path) -> Path | None:
    """The file without which a run has no study; None where there is none."""
    return next((run / name for name in (FILE, SQLITE) if (run / name).exists()), None)


def known_place(run: Path) -> StudyPlace | None:
    """Where the study of a run is; None where it has none.

    Raises:
        InputError: its `study.json` is not what it should be.
    """
    file = study_file(run)
    if file is None:
        return None
    if file.name == SQLITE:
        return _place_in_run(run)
    try:
        saved = json.loads(file.read_text())
        url, name = saved["url"], saved["name"]
        if not (isinstance(url, str) and isinstance(name, str)):
            raise TypeError
    except (ValueError, LookupError, TypeError):
        raise InputError(f'{file}: expected {{"name": ..., "url": ...}}, where the study of the run is') from None
    return StudyPlace(run, database_url(url, f"{file}:"), name, in_run=False)


def _place_in_run(run: Path) -> StudyPlace:
    return StudyPlace(run, sqlite_url(run / SQLITE), run.name, in_run=True)


def check_place(run: Path, url: str | None) -> None:
    """See that the study of `run` can be at `url` (None: where it is): before a run is begun the database has to answer.

    Raises:
        InputError: it is somewhere else; `url` is none, or nothing answers there.
    """
    place, wanted_url = known_place(run), url and database_url(url)
    if place is not None and wanted_url and place.url != wanted_url:
        where = run / SQLITE if place.in_run else place.url
        raise InputError(
            f"{OPTION} {wanted_url}: the study of {run} is in {where}; expected the same or another --name"
            + ("" if place.in_run else f" (where that database has another address now: in {run / FILE} too)")
        )
    if place is not None and not place.in_run:
        place.storage().engine.dispose()
    elif wanted_url:
        StudyPlace(run, wanted_url, "", in_run=False).storage(patient=False).engine.dispose()


def claim_place(run: Path, url: str | None, name: str) -> StudyPlace:
    """Where the study of `run`, which is called `name`, is from now on: where it was, else at `url` (None: in its folder).

    Without `url`, a run whose earlier results were set aside goes on in the database that they are in.
    """
    if (bound_place := known_place(run)) is not None:
        return bound_place
    before = sorted(run.glob(f"before-*/{FILE}"), key=lambda path: int(path.parent.name.removeprefix("before-")))
    if url is None and before:
        earlier = known_place(before[-1].parent)
        url = earlier.url if earlier else None
    if url is None:
        return _place_in_run(run)
    place = StudyPlace(run, database_url(url), f"{name} ({secrets.token_hex(4)})", in_run=False)
    write_json(run / FILE, {"name": place.name, "url": place.url})
    return place
