"""The database of a sink: made from a URL, its transactions, and its errors as sentences.

Errors that a restart may resolve (it is down, locked, full, starting up) become Unavailable; permanent ones (the
password, the table, a value that does not fit) are errors of the author.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from lockgate_common.masking import has_stray_at, masked
from sqlalchemy.exc import (
    ArgumentError,
    DBAPIError,
    InterfaceError,
    InternalError,
    NoSuchModuleError,
    OperationalError,
    SQLAlchemyError,
)

from lockgate_taskmanager.spark.limits import UNLIMITED, Limits
from lockgate_taskmanager.spark.variables import filled_url
from lockgate_taskmanager.task.program import DataError, Unavailable, UserError

SQLITE, POSTGRESQL = "sqlite", "postgresql"
_DRIVERS = {SQLITE: ("sqlite", "sqlite+pysqlite"), POSTGRESQL: ("postgresql", "postgresql+psycopg")}
_NO_DRIVER = (
    "the database URL cannot be used: the PostgreSQL driver is not installed on this task manager;"
    " install it with: pip install 'lockgate[postgresql]'"
)
_SQLITE_BUSY_TIMEOUT_S = 30
_IDLE_TIMEOUT_MS = 10_000
"""The server ends a transaction whose process is stalled for this long: it holds the lock on its sink's ledger row."""

# libpq's defaults wait for a vanished host forever, or for a quarter of an hour
_POSTGRESQL_DEFAULTS: Mapping[str, Any] = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
    "application_name": "lockgate",
}
_LIBPQ_FILES = frozenset({"passfile", "sslkey", "sslcert", "sslcrl", "sslcrldir", "sslkeylogfile", "servicefile"})
_FAULTS = (OperationalError, InterfaceError, InternalError)
# The server refuses a connection before there is a result with an SQLSTATE, so the message text has to be used. In a
# language other than English it is not recognized, and the refusal counts as a transient fault: the job restarts, and
# reports why.
_REFUSALS = (
    "password authentication failed",
    "no password supplied",
    "no pg_hba.conf entry",
    "does not exist",
    "is not permitted to log in",
    "permission denied for database",
)


class Database:
    """One connection to a database. Used from one thread at a time."""

    def __init__(self, url: str, where: str, limits: Limits = UNLIMITED) -> None:
        """where: the sink's name in messages. Raises UserError for a URL that cannot be used."""
        self._where = where
        self.engine = _engine(url, where, limits)
        self.is_postgresql = self.engine.dialect.name == POSTGRESQL

    @contextmanager
    def transaction(self) -> Iterator[sa.Connection]:
        """Committed at the end of the block, rolled back when it raises."""
        with self.engine.begin() as connection:
            # both until the end of the transaction; timestamps have the same meaning as in Spark
            if self.is_postgresql:
                connection.exec_driver_sql(
                    "SELECT set_config('TimeZone', 'UTC', true),"
                    f" set_config('idle_in_transaction_session_timeout', '{_IDLE_TIMEOUT_MS}', true)"
                )
            yield connection

    @contextmanager
    def explained(self, subject: str, *, on_records: bool = False) -> Iterator[None]:
        """Turns the database's exceptions inside the block into UserError or Unavailable.

        subject: the object passed to the database; on_records: these are records, and a refusal of them is a DataError.
        """
        title = f"{self._where}: the database {masked(self.engine.url.render_as_string(hide_password=True))}"
        try:
            yield
        except DBAPIError as error:
            text = reason(error)
            if problem := _problem_of_path(error, self.engine.url):
                raise UserError(f"{title} cannot be opened: {problem}") from error
            if error.connection_invalidated or (isinstance(error, _FAULTS) and not _is_lasting(error)):
                if self.is_postgresql and _is_refusal(error, text):
                    raise UserError(f"{title} cannot be used: {text}") from error
                raise Unavailable(f"{title} failed: {text}") from error
            kind = DataError if on_records and not _is_wrong_statement(error) else UserError
            raise kind(f"{title} refused {subject}: {text}") from error
        except SQLAlchemyError as error:
            kind = DataError if on_records else UserError
            raise kind(f"{title} cannot be used: {reason(error)}") from error

    def close(self) -> None:
        """Closes the connection."""
        self.engine.dispose()


def _is_wrong_statement(error: DBAPIError) -> bool:
    """True when the database refuses the table or a permission, not a row: it would refuse any row."""
    return _sqlstate(error).startswith("42") or (_is_lasting(error) and not _sqlstate(error).startswith("54"))


def _is_lasting(error: DBAPIError) -> bool:
    """True for what drivers count among the faults of a server, and no restart resolves.

    PostgreSQL: a constraint that is DEFERRABLE (55000), a limit (54). SQLite: a wrong statement, a file that this user
    may not write; not a file that is replaced or recovered, which have codes of their own.
    """
    state, code = _sqlstate(error), _sqlite_code(error)
    return (
        state == "55000"
        or state.startswith("54")
        or code & 0xFF == sqlite3.SQLITE_ERROR
        or code == sqlite3.SQLITE_READONLY
    )


def _problem_of_path(error: DBAPIError, url: sa.URL) -> str | None:
    """Why SQLite cannot open a file, when that is its path; it does not say so itself."""
    path = url.database or ""
    if _sqlite_code(error) & 0xFF != sqlite3.SQLITE_CANTOPEN or path.startswith("file:"):
        return None
    if os.path.isdir(path):
        return "this is a folder; name a file"
    folder = os.path.dirname(os.path.abspath(path))
    return None if os.path.isdir(folder) else f"this task manager has no folder {folder}; create it on every host"


def _sqlstate(error: DBAPIError) -> str:
    return str(getattr(error.orig, "sqlstate", None) or "")


def _sqlite_code(error: DBAPIError) -> int:
    """SQLite's extended result code, the lowest byte of which is the primary one; 0 for other errors."""
    return int(getattr(error.orig, "sqlite_errorcode", 0))


def _is_refusal(error: DBAPIError, text: str) -> bool:
    """True when the server refused the connection itself, for a permanent reason."""
    connecting = not _sqlstate(error) and "FATAL" in text
    return connecting and any(refusal in text for refusal in _REFUSALS)


def reason(error: SQLAlchemyError) -> str:
    """The database's message, in one line."""
    lines = [" ".join(line.split()) for line in str(getattr(error, "orig", None) or error).strip().splitlines()]
    if lines and lines[0].endswith(":"):  # several addresses were tried, one per line
        return " ".join(line for line in lines if line)
    return lines[0] if lines else type(error).__name__


def _engine(url: str, where: str, limits: Limits) -> sa.Engine:
    try:
        parsed = _parsed(url, where, limits)
        if limits.bind:
            _check_files(parsed, where, limits)
        if parsed.get_backend_name() == POSTGRESQL:
            given = {name: value for name, value in _POSTGRESQL_DEFAULTS.items() if name not in parsed.query}
            parsed = parsed.set(drivername="postgresql+psycopg")  # independent of the SQLAlchemy version's default
            return sa.create_engine(parsed, pool_size=1, max_overflow=1, pool_pre_ping=True, connect_args=given)
        engine = sa.create_engine(parsed, connect_args={"timeout": _SQLITE_BUSY_TIMEOUT_S})
    except ImportError as error:
        raise UserError(f"{where}: {_NO_DRIVER} ({error})") from error
    except (ArgumentError, NoSuchModuleError) as error:
        raise UserError(f"{where}: the database URL cannot be used: {error}") from error
    # A transaction that reads before it writes fails at once when another one writes; taking the lock first makes it
    # wait
    sa.event.listen(engine, "connect", lambda connection, _: setattr(connection, "isolation_level", None))
    sa.event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
    return engine


def _check_files(url: sa.URL, where: str, limits: Limits) -> None:
    """Raises UserError for a database file, or a file of libpq's options, that the job may not use."""
    if url.get_backend_name() == SQLITE:
        name = url.database or ""
        if name.startswith("file:") or "uri" in url.query:
            raise UserError(f"{where}: a database file named by a URI needs the role code; write its path")
        if name and name != ":memory:":
            limits.check_path(name, f"{where}: the database {name}", writes=True)
        return
    for option in _LIBPQ_FILES & url.query.keys():
        for value in (found,) if isinstance(found := url.query[option], str) else found:
            if not value.startswith("/"):
                raise UserError(f"{where}: the option {option} must be an absolute path")
            limits.check_path(value, f"{where}: the file of the option {option}", writes=option == "sslkeylogfile")


def _parsed(url: str, where: str, limits: Limits) -> sa.URL:
    text = filled_url(url, where, limits)
    if has_stray_at(text):  # it is not shown: where the password ends is not known
        raise UserError(
            f"{where}: the database URL has more than one @: write %40 for each that is not before the host"
        )
    try:
        parsed = sa.make_url(text)
    except ValueError:  # its text may hold a part of the password, so it is not shown
        raise UserError(f"{where}: the database URL cannot be used: its port is not a number") from None
    known = _DRIVERS.get(parsed.get_backend_name())
    if known is None:
        raise UserError(f"{where}: {parsed.get_backend_name()} is not supported; use sqlite or postgresql")
    if parsed.drivername not in known:
        raise UserError(f"{where}: the driver of {parsed.drivername}:// is not supported; write {known[0]}://")
    return parsed
