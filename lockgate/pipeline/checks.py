"""Checks of the arguments that a pipeline's author passes; each raises PipelineError at the author's line."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from lockgate_common.masking import has_stray_at
from lockgate_common.uris import absolute

from lockgate.pipeline.errors import PipelineError

T = TypeVar("T")

_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_JOB_KEY = re.compile(r"[A-Za-z0-9._-]{1,128}")
_SQLITE = re.compile(r"^(sqlite(?:\+\w+)?):///?(.*)$")
_COLUMN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MAX_DURATION_MS = 1_000_000_000_000
_UNITS_MS = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 1),
    **dict.fromkeys(("s", "second", "seconds"), 1000),
    **dict.fromkeys(("min", "minute", "minutes"), 60_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000),
}
_DURATION = re.compile(rf"([0-9]+(?:\.[0-9]+)?) *({'|'.join(sorted(_UNITS_MS, key=len, reverse=True))})")
_INPUT = re.compile(r"\binput\b", re.IGNORECASE)


def text(method: str, name: str, value: Any, example: str) -> str:
    """A non-empty text."""
    if not isinstance(value, str) or not value.strip():
        raise PipelineError(f"{method}() needs {name} as text, such as {example!r}, not {value!r}")
    return value.strip()


def whole(method: str, name: str, value: Any, least: int, most: int = 2**31 - 1) -> int:
    """A whole number from `least` to `most`."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise PipelineError(f"{method}: {name} must be a whole number from {least} to {most}, not {value!r}")
    return value


def one_of(method: str, name: str, value: Any, known: Mapping[str, T]) -> T:
    """The value for a name."""
    if not isinstance(value, str) or value not in known:
        names = ", ".join(f'"{name}"' for name in known)
        raise PipelineError(f"{method}: {name} must be one of {names}, not {value!r}")
    return known[value]


def duration(method: str, name: str, value: Any, least: int) -> int:
    """A time in milliseconds, from text such as "5 seconds" or a whole number of milliseconds."""
    found = _DURATION.fullmatch(value.strip().lower()) if isinstance(value, str) else None
    if found is not None:
        value = round(float(found[1]) * _UNITS_MS[found[2]])
    if isinstance(value, bool) or not isinstance(value, int):
        raise PipelineError(f"{method}(): {name} must be a time such as '5 seconds' or '100 ms', not {value!r}")
    if not least <= value <= _MAX_DURATION_MS:
        raise PipelineError(f"{method}(): {name} must be {least} to {_MAX_DURATION_MS} milliseconds, not {value}")
    return value


def signed_duration(method: str, name: str, value: Any) -> int:
    """As `duration`, but may be negative: "-5 seconds"."""
    given = value.strip() if isinstance(value, str) else ""
    if given.startswith("-"):
        return -duration(method, name, given[1:].strip(), 0)
    if isinstance(value, int) and not isinstance(value, bool) and value < 0:
        return -duration(method, name, -value, 0)
    return duration(method, name, value, 0)


def settings(method: str, options: Any, example: str) -> Mapping[str, str]:
    """Names and values of another system's options, as text; empty for None."""
    if options is None:
        return {}
    if not isinstance(options, Mapping) or not all(isinstance(name, str) for name in options):
        raise PipelineError(f"{method}() takes options={example}")
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()}


def is_column(expression: str) -> bool:
    """True for SQL that is a plain column name."""
    return bool(_COLUMN.fullmatch(expression))


def identifier(value: Any) -> str:
    """An operator id."""
    if not isinstance(value, str) or not _ID.fullmatch(value):
        raise PipelineError(f"uid() takes 1 to 64 characters from A-Z a-z 0-9 . _ -, not {value!r}")
    return value


def job_key(value: Any) -> str:
    """A job key."""
    if not isinstance(value, str) or not _JOB_KEY.fullmatch(value):
        raise PipelineError(f"a job key is 1 to 128 characters from A-Z a-z 0-9 . _ -, not {value!r}")
    return value


def columns(method: str, values: Iterable[Any]) -> tuple[str, ...]:
    """One or more column names, each once."""
    names: list[str] = []
    for value in values:
        name = text(method, "column names", value, "word")
        if name in names:
            raise PipelineError(f"{method}() names the column {name!r} twice")
        names.append(name)
    if not names:
        raise PipelineError(f'{method}() needs at least one column name, such as {method}("word")')
    return tuple(names)


def query(value: Any) -> str:
    """SQL over the relation `input`."""
    sql = text("sql", "a query", value, "SELECT value FROM input")
    if not _INPUT.search(sql):
        raise PipelineError(f"the query must read from the relation `input`, which holds the incoming rows: {sql!r}")
    return sql.rstrip(";").rstrip()


def location(method: str, path: Any) -> str:
    """A path that means the same in every process: local paths become absolute, URIs are unchanged."""
    found = text(method, "a path", os.fspath(path) if isinstance(path, os.PathLike) else path, "/data/in")
    return absolute(found)


def schema(method: str, value: Any) -> str:
    """A Spark DDL schema, from text or from a pyspark StructType."""
    if hasattr(value, "fields"):
        return ", ".join(f"{_quoted(field.name)} {_ddl(field.dataType)}" for field in value.fields)
    return text(method, "schema=", value, "name STRING, price DOUBLE")


def _ddl(kind: Any) -> str:
    """From a pyspark DataType, whose own text does not quote the names of fields."""
    if hasattr(kind, "fields"):
        return f"STRUCT<{', '.join(f'{_quoted(field.name)}: {_ddl(field.dataType)}' for field in kind.fields)}>"
    if hasattr(kind, "elementType"):
        return f"ARRAY<{_ddl(kind.elementType)}>"
    if hasattr(kind, "keyType"):
        return f"MAP<{_ddl(kind.keyType)}, {_ddl(kind.valueType)}>"
    return str(kind.simpleString())


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def database_url(value: Any) -> str:
    """An SQLAlchemy URL; the file of an SQLite database becomes absolute."""
    url = text("write_sql", "a database URL", value, "sqlite:////data/counts.db")
    if "://" not in url:
        raise PipelineError(f"write_sql() takes an SQLAlchemy URL, such as 'sqlite:///counts.db', not {url!r}")
    sqlite = _SQLITE.match(url)
    if not sqlite:
        backend = url.partition("://")[0]
        if backend not in ("postgresql", "postgresql+psycopg"):
            raise PipelineError(
                f"write_sql() supports sqlite:/// and postgresql://, not {backend}://; for another database use "
                "foreach_batch()"
            )
        if has_stray_at(url):
            raise PipelineError(
                "the URL of write_sql() has more than one @: write %40 for each that is not before the host"
            )
        return url
    path = sqlite[2]
    if path.startswith("~"):
        user, slash, rest = path.partition("/")
        path = _in_url(os.path.expanduser(user)) + slash + rest
    if not path or path.startswith(":memory:"):
        raise PipelineError(
            "write_sql() cannot use an SQLite database in memory: task managers are separate "
            "processes; name a file, such as 'sqlite:///counts.db'"
        )
    if not path.startswith("/"):
        path = f"{_in_url(os.getcwd())}/{path}"
    return f"{sqlite[1]}:///{os.path.abspath(path)}"


def _in_url(folder: str) -> str:
    """A part of a URL, as SQLAlchemy writes it. Others are left as they are, which anybody can read."""
    if not {"%", "?"} & set(folder):
        return folder
    from sqlalchemy import URL

    return URL.create("sqlite", database=folder).render_as_string().removeprefix("sqlite:///")
