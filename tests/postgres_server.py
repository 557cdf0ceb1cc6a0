"""A PostgreSQL server of a test's own: in a temporary folder, on a free port of this machine, stopped and started at will."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

USER, SECRET_USER, PASSWORD = "tester", "careful", "s3cret-pass"
"""`tester` comes in without a password, `careful` with one."""


def programs() -> Path | None:
    """The folder of `initdb` and `pg_ctl`; Debian has it beside the path, one for each version."""
    found = shutil.which("initdb")
    folders = [Path(found).parent] if found else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda p: float(p.parent.name), reverse=True)
    return next((folder for folder in folders if (folder / "initdb").exists() and (folder / "pg_ctl").exists()), None)


class PostgresServer:
    """Begins empty; `url` is of its database `studies`."""

    def __init__(self) -> None:
        folder = programs()
        if folder is None:
            pytest.skip("PostgreSQL is not installed (initdb, pg_ctl)")
        pytest.importorskip("psycopg", reason="psycopg is not installed (extra: postgres)")
        self.programs = folder
        self.as_user = _other_user()
        self.root = Path(tempfile.mkdtemp(prefix="distilbench-postgres-", dir="/tmp"))  # its user cannot enter pytest's
        if self.as_user:
            os.chown(self.root, self.as_user["user"], self.as_user["group"])
        self.data = self.root / "data"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self._run("initdb", "-D", str(self.data), "-U", USER, "--auth=trust", "-E", "UTF8", "--locale=C", "--no-sync")
        rules = f"host all {SECRET_USER} 127.0.0.1/32 scram-sha-256\nhost all {USER} 127.0.0.1/32 trust\n"
        (self.data / "pg_hba.conf").write_text(rules)
        settings = f"port = {self.port}\nlisten_addresses = '127.0.0.1'\nunix_socket_directories = ''\nfsync = off\n"
        with (self.data / "postgresql.conf").open("a") as file:
            file.write(settings)
        self.start()
        self.do(f"CREATE ROLE {SECRET_USER} LOGIN SUPERUSER PASSWORD '{PASSWORD}'")
        self.create("studies")

    @property
    def url(self) -> str:
        return self.url_of("studies")

    def url_of(self, database: str, user: str = USER) -> str:
        return f"postgresql+psycopg://{user}@127.0.0.1:{self.port}/{database}"

    def create(self, database: str) -> str:
        """A new database; its URL."""
        self.do(f"CREATE DATABASE {database}")
        return self.url_of(database)

    def do(self, statement: str, database: str = "postgres") -> list[Any]:
        """The rows that a statement gives."""
        import psycopg

        where = {"host": "127.0.0.1", "port": self.port, "user": USER, "dbname": database}
        with psycopg.connect(**where, autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def start(self) -> None:
        log = self.root / "log.txt"
        self._run("pg_ctl", "-D", str(self.data), "-l", str(log), "-w", "start")

    def stop(self, how: str = "immediate") -> None:
        """`immediate`: as if it crashed."""
        self._run("pg_ctl", "-D", str(self.data), "-m", how, "-w", "stop")

    def close(self) -> None:
        if (self.data / "postmaster.pid").exists():
            self.stop()
        shutil.rmtree(self.root, ignore_errors=True)

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self.programs / program), *arguments]
        # Not into a pipe: the server would keep it open.
        with (self.root / "commands.txt").open("a+") as out:
            done = subprocess.run(
                command, cwd="/", stdin=subprocess.DEVNULL, stdout=out, stderr=out, timeout=120, **self.as_user
            )
            out.seek(0)
            assert done.returncode == 0, out.read()[-3000:]


def _other_user() -> dict[str, Any]:
    """For `subprocess`: who runs the server; root may not."""
    if os.geteuid():
        return {}
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    pytest.skip("PostgreSQL does not run as root, and there is no user postgres or nobody")
