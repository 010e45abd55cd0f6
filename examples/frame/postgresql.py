"""A private PostgreSQL server out of the distribution's package, on a free port, as a user who is not root."""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from lockgate_devtools.cluster.ports import choose

from examples.frame.example import NotHere
from lockgate.errors import UserError

USER, PASSWORD = "lockgate", "not-a-secret"
_UNPRIVILEGED = ("postgres", "nobody")
_START_S = 60.0
_LOOK_EVERY_S = 0.05


class PostgresqlServer:
    """`url()` names it, from the start. A context, also more than once: it runs inside; data go at its end."""

    def __init__(self) -> None:
        """Picks a free port and does nothing else."""
        self._numbers = itertools.count(1)
        self._pause = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        (self.port,) = choose(1)  # which no outgoing connection takes while the server is down

    def __enter__(self) -> PostgresqlServer:
        """Raises NotHere with the reason where there can be no server."""
        self._binaries = _binaries()
        self._account = _unprivileged() if os.geteuid() == 0 else None
        self._folder = Path(tempfile.mkdtemp(prefix="lockgate-postgresql-"))
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
            "fsync": "off",  # the tests kill processes, not machines
            "log_min_messages": "fatal",
        }
        arguments = [text for name, value in options.items() for text in ("-c", f"{name}={value}")]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._command("postgres"), "-D", self._data, "-p", str(self.port), *arguments],
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
            )
        deadline = time.monotonic() + _START_S
        while not self._answers():
            if self._process.poll() is not None:
                raise UserError(f"PostgreSQL has ended: {(self._folder / 'log').read_text(errors='replace')}")
            if time.monotonic() > deadline:
                raise UserError(f"the PostgreSQL server takes no connections after {_START_S:g} s")
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
            [*self._command(program), *arguments], cwd=self._folder, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise UserError(f"{program} failed: {done.stderr.strip()}")

    def _command(self, program: str) -> list[str]:
        """How it is started as the user that it may run as.

        Not by `subprocess` and its `user`: that forks, and where other threads use gRPC the child may hang or abort in
        gRPC's handlers of a fork. Without it the child shares this process's memory until it is another program.
        """
        path = str(self._binaries / program)
        if self._account is None:
            return [path]
        return ["setpriv", f"--reuid={self._account.pw_uid}", f"--regid={self._account.pw_gid}", "--clear-groups", path]


def _binaries() -> Path:
    """The folder that holds the newest `initdb`."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    if not found:
        raise NotHere("no PostgreSQL server: Debian's package `postgresql` is not installed")
    return found[-1].parent


def _unprivileged() -> pwd.struct_passwd:
    known = {user.pw_name: user for user in pwd.getpwall()}
    found = next((known[name] for name in _UNPRIVILEGED if name in known), None)
    if found is None:
        raise NotHere(f"no PostgreSQL server: root may not run one, and no user is {' or '.join(_UNPRIVILEGED)}")
    return found
