"""The log of a process: text or JSON, with fields, masked, in a real process."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
from typing import Any

import pytest
from lockgate_common.logs import ATTEMPT_ENDED, FIELDS, FORMATS, LEVELS, JsonFormatter, about, start_logging
from lockgate_common.settings import SettingsError

SECRET = "correct-horse-battery"
PROGRAM = f"""
import logging
from lockgate_common.logs import about, start_logging

start_logging()
log = logging.getLogger("room")
with about(job="orders", attempt=3):
    log.info("checkpoint %d is complete", 7, extra={{"checkpoint": 7, "token": 2}})
    try:
        raise ValueError("no answer of postgresql://shop:{SECRET}@db/shop")
    except ValueError:
        log.exception("it failed\\nin two lines")
logging.getLogger("kazoo.client").info("noise")
log.info("after it")
"""


def _run(program: str = PROGRAM, **environment: str) -> list[str]:
    result = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return result.stderr.splitlines()


def test_json_is_one_object_a_line_with_fields_and_exception() -> None:
    lines = [json.loads(line) for line in _run(LOCKGATE_LOG_FORMAT="json")]
    complete, failed, after = lines
    assert complete.pop("time")[-6:] == "+00:00"
    assert complete == {
        "level": "INFO",
        "thread": "MainThread",
        "logger": "room",
        "message": "checkpoint 7 is complete",
        "job": "orders",
        "attempt": 3,
        "checkpoint": 7,
        "token": 2,
    }
    assert failed["message"] == "it failed\nin two lines"
    assert failed["exception"].startswith("Traceback")
    assert "postgresql://shop:***@db" in failed["exception"]
    assert "job" not in after


def test_text_is_unchanged_and_masked() -> None:
    text = "\n".join(_run())
    assert "INFO MainThread room: checkpoint 7 is complete" in text
    assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO ", text)
    assert "Traceback" in text
    assert SECRET not in text
    assert "noise" not in text


FORGED = (
    "2026-11-23T12:00:00.000Z INFO rpc-asks_0 lockgate.audit: Cancel job='orders' by='admin' from=ipv4:10.0.0.1:1: OK"
)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("end", ["\n", "\r", "\r\n", "\x0b", "\x0c", "\x1b[2K\x1b[G", "\x85", "\u2028", "\u202e"])
def test_no_message_forges_a_log_line(form: str, end: str) -> None:
    """Whatever counts as the end of a line, in a message, an exception of user code or the name of a thread."""
    program = f"""
import logging, threading
from lockgate_common.logs import start_logging
start_logging()
threading.current_thread().name = {end + FORGED!r}
try:
    raise ValueError({end + FORGED!r})
except ValueError as error:
    logging.getLogger("room").exception("it failed: %s", error)
"""
    text = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "LOCKGATE_LOG_FORMAT": form},
        capture_output=True,
        check=True,
    ).stderr.decode()
    assert text.count(FORGED[:31]) == 3
    first, *further = text.splitlines()
    assert (form == "json" and json.loads(first)["message"].endswith(FORGED)) or not first.startswith(FORGED[:12])
    assert all(line.startswith("    ") for line in further)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e]", text)
    assert form == "json" or "\n    Traceback (most recent call last):\n      File " in text


def test_text_and_json_have_the_same_time_whatever_the_time_zone() -> None:
    program = """
import logging, sys
from lockgate_common.logs import JsonFormatter, start_logging
start_logging()
record = logging.makeLogRecord({"msg": "", "levelname": "INFO", "created": 1795874926.273, "msecs": 273})
logging.getLogger().handlers[0].handle(record)
print(JsonFormatter().format(record), file=sys.stderr)
"""
    text, structured = _run(program, TZ="XYZ-5")
    assert text.startswith("2026-11-28T14:08:46.273Z INFO ")
    assert json.loads(structured)["time"] == "2026-11-28T14:08:46.273+00:00"


@pytest.mark.parametrize("level", LEVELS)
def test_no_level_switches_the_audit_log_off(level: str) -> None:
    program = (
        "import logging; from lockgate_common.logs import AUDIT, start_logging; start_logging()\n"
        "for name in (AUDIT, 'room'): logging.getLogger(name).info('from %s', name)"
    )
    lines = _run(program, LOCKGATE_LOG_LEVEL=level)
    assert [line.partition("from ")[2] for line in lines] == [
        "lockgate.audit",
        *(["room"] if level in ("DEBUG", "INFO") else []),
    ]


@pytest.mark.parametrize("variable", ["LOCKGATE_LOG_FORMAT", "LOCKGATE_LOG_LEVEL"])
def test_a_wrong_name_is_reported_with_the_allowed_ones(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "xml")
    with pytest.raises(SettingsError, match=rf"{variable}: 'xml' is not known; use one of \w+, "):
        start_logging()


def _written(message: str, **extra: Any) -> dict[str, Any]:
    record = logging.makeLogRecord({"msg": message, "levelno": logging.INFO, "levelname": "INFO", **extra})
    return dict(json.loads(JsonFormatter().format(record)))


def test_secrets_are_masked_before_quotes_are_escaped() -> None:
    written = _written(f'password="{SECRET}"', cause=f"token='{SECRET}'")
    assert SECRET not in json.dumps(written)
    assert written["message"] == 'password="***"'


def test_one_subject_inside_another_adds_to_it_and_ends() -> None:
    with about(job="a", attempt=1), about(attempt=2, subtask="rows[1]"):
        assert {name: _written("x").get(name) for name in ("job", "attempt", "subtask")} == {
            "job": "a",
            "attempt": 2,
            "subtask": "rows[1]",
        }
    assert "job" not in _written("x")


def test_a_field_that_changes_is_looked_up_for_each_line() -> None:
    tokens = iter((1, 2, 0))
    with about(token=lambda: next(tokens)):
        assert [_written("x").get("token") for _ in range(3)] == [1, 2, None]


@pytest.mark.parametrize(
    ("template", "arguments", "fields"),
    [
        ("job %s: %s, attempt %d%s: %s", ("k", "FAILED", 3, "", "x"), {"job": "k", "attempt": 3}),
        (ATTEMPT_ENDED, (3, "k"), {"job": "k", "attempt": 3}),
        ("deployment of attempt %d of %s is ignored", (3, "k"), {"job": "k", "attempt": 3}),
        ("%s declines checkpoint %d: 100 %% of job %s", ("rows-0", 7, "k"), {"checkpoint": 7, "job": "k"}),
        ("leading under token %s: %s to recover", (2, "9 jobs"), {"token": 2}),
        ("the files of %s and %5.1f s", ("k", 1.0), {}),
        ("nothing", (), {}),
    ],
)
def test_what_a_message_names_is_a_field(template: str, arguments: tuple[Any, ...], fields: dict[str, Any]) -> None:
    with about(token=1, cause="c-1"):
        written = _written(template, args=arguments)
        given = _written(template, args=arguments, job="given")
    assert {name: written[name] for name in FIELDS if name in written} == {"token": 1, "cause": "c-1"} | fields
    assert given["job"] == "given"
