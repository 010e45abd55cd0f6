"""A private PostgreSQL server out of the distribution's package, on a free port, as a user who is not root."""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

REQUIRED = "LOCKGATE_TEST_POSTGRESQL"
"""Set to `required` where a skip is to count as a failure."""

USER, PASSWORD = "lockgate", "not-a-secret"
_UNPRIVILEGED = ("postgres", "nobody")
_START_S = 60.0
_LOOK_EVERY_S = 0.05


class PostgresqlServer:
    """`url()` names it. A context: the data are gone at its end."""

    def __init__(self, binaries: Path, account: pwd.struct_passwd | None) -> None:
        """binaries: the folder that holds `initdb`; account: whose processes they are, None for our own."""
        self._binaries = binaries
        self._account = account
        self._folder = Path(tempfile.mkdtemp(prefix="lockgate-postgresql-"))
        self._numbers = itertools.count(1)
        self._pause = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        with socket.create_server(("127.0.0.1", 0)) as taken:
            self.port: int = taken.getsockname()[1]

    @staticmethod
    def for_tests() -> PostgresqlServer:
        """A server; skips with the reason where there can be none, or fails where it is required."""
        found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
        account = _unprivileged() if os.geteuid() == 0 else None
        reason = ""
        if not found:
            reason = "no PostgreSQL server: Debian's package `postgresql` is not installed"
        elif os.geteuid() == 0 and account is None:
            reason = f"no PostgreSQL server: root may not run one, and there is no user {' or '.join(_UNPRIVILEGED)}"
        if reason and os.environ.get(REQUIRED) == "required":
            pytest.fail(reason)
        if reason:
            pytest.skip(reason)
        return PostgresqlServer(found[-1].parent, account)

    def __enter__(self) -> PostgresqlServer:
        password = self._folder / "password"
        password.write_text(PASSWORD)
        if self._account is not None:
            for path in (self._folder, password):
                os.chown(path, self._account.pw_uid, self._account.pw_gid)
        self._run(
            "initdb", "--pgdata", self._data, "--username", USER, "--pwfile", str(password), "--auth", "scram-sha-256",
            "--encoding", "UTF8", "--no-locale", "--no-sync",
        )  # fmt: skip
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def _data(self) -> str:
        return str(self._folder / "data")

    def url(self, database: str = "postgres", user: str = USER, password: str = PASSWORD) -> str:
        """For `write_sql` and SQLAlchemy."""
        return f"postgresql+psycopg://{user}:{password}@127.0.0.1:{self.port}/{database}"

    def new_database(self) -> str:
        """The URL of an empty database."""
        name = f"test{next(self._numbers)}"
        self.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def execute(self, statement: str, url: str | None = None) -> list[tuple[Any, ...]]:
        """Runs one statement outside of a transaction and returns its rows."""
        engine = sa.create_engine(url or self.url(), isolation_level="AUTOCOMMIT")
        try:
            with engine.connect() as connection:
                result = connection.exec_driver_sql(statement)
                return [tuple(row) for row in result] if result.returns_rows else []
        finally:
            engine.dispose()

    def start(self) -> None:
        """Starts it and waits until it takes connections."""
        options = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(self._folder),
            "fsync": "off",  # what is tested are dying processes, not dying machines
            "log_min_messages": "fatal",
        }
        arguments = [text for name, value in options.items() for text in ("-c", f"{name}={value}")]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(self._binaries / "postgres"), "-D", self._data, "-p", str(self.port), *arguments],
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
                **self._identity(),
            )
        deadline = time.monotonic() + _START_S
        while not self._answers():
            assert self._process.poll() is None, (self._folder / "log").read_text(errors="replace")
            assert time.monotonic() < deadline, "the PostgreSQL server does not take connections"
            self._pause.wait(_LOOK_EVERY_S)

    def kill(self) -> None:
        """Ends all of its processes at once, as a crash would: the next start has to recover."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(_START_S)
            self._process = None

    def _answers(self) -> bool:
        try:
            self.execute("SELECT 1")
        except sa.exc.OperationalError:
            return False
        return True

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [str(self._binaries / program), *arguments],
            cwd=self._folder,
            capture_output=True,
            text=True,
            check=False,
            **self._identity(),
        )
        assert done.returncode == 0, done.stderr

    def _identity(self) -> dict[str, Any]:
        if self._account is None:
            return {}
        return {"user": self._account.pw_uid, "group": self._account.pw_gid, "extra_groups": []}


def _unprivileged() -> pwd.struct_passwd | None:
    known = {one.pw_name: one for one in pwd.getpwall()}
    return next((known[name] for name in _UNPRIVILEGED if name in known), None)
