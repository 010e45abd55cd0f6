"""The log of a process: on stderr, one line of text or one JSON object for each record, without secrets.

Set up once, by `start_logging`. A line starts with its time, or with the indent of what belongs to the line before, so
no message makes one that looks like another's. What a line is about (job, attempt, ...) comes from `extra` of one call,
from what its message names ("job %s", "attempt %d of %s"), or from `about` around the code that logs; only JSON shows
it as fields, because a text names it already.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import lru_cache
from types import MappingProxyType

from lockgate_common.masking import masked
from lockgate_common.printable import printable
from lockgate_common.settings import SettingsError

FIELDS = ("job", "attempt", "subtask", "checkpoint", "token", "cause")
FORMATS = ("text", "json")
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
AUDIT = "lockgate.audit"
"""The logger of the audit log, which no level switches off."""

ATTEMPT_STARTS = "attempt %d of %s: %d subtasks start"
ATTEMPT_ENDED = "attempt %d of %s has ended"
"""Messages of a task manager from which `lockgate logs` learns when a job runs there."""

_TEXT = "%(asctime)s.%(msecs)03dZ %(levelname)s %(threadName)s %(name)s: %(message)s"
_DATE = "%Y-%m-%dT%H:%M:%S"
_DIRECTIVE = re.compile(r"(?:\b(\w+) )?%(%|[-+ #0]*[\d.]*[a-zA-Z])")
"""Of a message's template, with the word before it."""
_NOISY = ("kazoo", "py4j", "uvicorn")
_INDENT = "    "
_subject: ContextVar[Mapping[str, object]] = ContextVar("log_subject", default=MappingProxyType({}))


@contextmanager
def about(**fields: object) -> Iterator[None]:
    """What lines of this thread are about while the block runs; names from FIELDS.

    A value that may change meanwhile is a function, which each line calls.
    """
    former = _subject.set({**_subject.get(), **fields})
    try:
        yield
    finally:
        _subject.reset(former)


def start_logging(level: str = "", form: str = "", default_level: str = "INFO") -> None:
    """Log lines on stderr from now on.

    level: LOCKGATE_LOG_LEVEL when empty, or default_level; form: LOCKGATE_LOG_FORMAT when empty, or text.
    Raises SettingsError for a name that means nothing.
    """
    level = _named("LOCKGATE_LOG_LEVEL", level, default_level, LEVELS)
    form = _named("LOCKGATE_LOG_FORMAT", form, FORMATS[0], FORMATS)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter(_TEXT, _DATE))
    logging.basicConfig(level=level, handlers=[handler])
    for name in _NOISY:
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.getLogger(AUDIT).setLevel(logging.INFO)


def _named(variable: str, given: str, default: str, known: tuple[str, ...]) -> str:
    name = given or os.environ.get(variable) or default
    if name not in known:
        raise SettingsError(f"{variable}: {name!r} is not known; use one of {', '.join(known)}")
    return name


class TextFormatter(logging.Formatter):
    """As logging does, masked as a whole; further lines of a message, and tracebacks, are indented."""

    converter = staticmethod(time.gmtime)

    def format(self, record: logging.LogRecord) -> str:
        """The record's text."""
        return printable(masked(super().format(record))).replace("\n", f"\n{_INDENT}")


class JsonFormatter(logging.Formatter):
    """One JSON object in one line: time, level, thread, logger, message, fields that are known, exception."""

    def format(self, record: logging.LogRecord) -> str:
        """The record's line."""
        written: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "thread": record.threadName,
            "logger": record.name,
            "message": masked(record.getMessage()),
        }
        subject = {**_subject.get(), **_named_in(record)}
        for field in FIELDS:
            value = getattr(record, field, None) or subject.get(field)
            value = value() if callable(value) else value
            if value:
                written[field] = masked(value) if isinstance(value, str) else value
        if record.exc_info:
            written["exception"] = masked(self.formatException(record.exc_info))
        if record.stack_info:
            written["stack"] = masked(record.stack_info)
        return printable(json.dumps(written, ensure_ascii=False, default=str))


def _named_in(record: logging.LogRecord) -> dict[str, object]:
    """Fields that the message names."""
    arguments = record.args
    if not isinstance(arguments, tuple) or not isinstance(record.msg, str):
        return {}
    return {field: arguments[at] for field, at in _fields_of(record.msg) if at < len(arguments)}


@lru_cache(maxsize=512)
def _fields_of(template: str) -> tuple[tuple[str, int], ...]:
    """(field, number of the argument): of "attempt %d of %s" the second one is the job."""
    words = [found[1] for found in _DIRECTIVE.finditer(template) if found[2] != "%"]
    named = [(word, at) for at, word in enumerate(words) if word in FIELDS]
    jobs = [("job", at + 1) for at, word in enumerate(words[:-1]) if word == "attempt" and words[at + 1] == "of"]
    return (*jobs, *named)
