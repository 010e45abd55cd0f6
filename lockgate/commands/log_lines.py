"""The log lines of several processes as one sequence, and those of them that are about one job. Pure.

A record is a line with a time, with the indented lines below it (a traceback); or what stands between two of these:
printed by the job's own code or by Spark, without a time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from lockgate_common.logs import ATTEMPT_ENDED, ATTEMPT_STARTS

_TIME = re.compile(r'^(?:\{"time": ")?(\d{4}-\d\d-\d\dT)?(\d\d:\d\d:\d\d\.\d{3})')
_NO_DATE = "0000-00-00T"  # before any other: an earlier version wrote the line
_INDENT = "    "
_ATTEMPT = re.compile(r"^\S+ [A-Z]+ subtask-\S+@(\d+) ")
_NEW_PROCESS = re.compile(r"^lockgate \w+ ready: ", re.MULTILINE)


def _pattern(message: str) -> re.Pattern[str]:
    """Of a log message with numbers and names."""
    return re.compile(re.escape(message).replace("%d", r"(\d+)").replace("%s", r"(\S+)"))


_STARTS, _ENDED = _pattern(ATTEMPT_STARTS), _pattern(ATTEMPT_ENDED)


@dataclass(frozen=True, slots=True)
class Record:
    """process: whose log it is in; at: date and time, in text.

    Printed lines have the time of the record before them.
    """

    process: str
    at: str
    lines: tuple[str, ...]
    is_printed: bool = False

    def text(self) -> str:
        """Each line behind the name of its process."""
        return "\n".join(f"{self.process}  {line}" for line in self.lines)


class Parser:
    """Makes records of one process's log, whose lines come in any number of pieces."""

    def __init__(self, process: str) -> None:
        self._process = process
        self._at = ""
        self._held: list[str] = []
        self._is_printed = False

    def take(self, lines: Iterable[str]) -> Iterator[Record]:
        """The records that are complete with these lines; the last one is held back for the lines that follow it."""
        for line in lines:
            moment = time_of(line)
            is_more = bool(self._held) and not moment and (self._is_printed or line.startswith(_INDENT))
            if not is_more:
                yield from self.rest()
                self._is_printed = not moment
                self._at = moment or self._at
            self._held.append(line)

    def rest(self) -> Iterator[Record]:
        """The record that is held back, when no more lines will come for now."""
        if self._held:
            yield Record(self._process, self._at, tuple(self._held), self._is_printed)
        self._held = []


def time_of(line: str) -> str:
    """`2026-11-23T12:10:30.316` of a log line in text or JSON; "" for any other line."""
    found = _TIME.match(line)
    return f"{found[1] or _NO_DATE}{found[2]}" if found else ""


class OfJob:
    """Picks one job's records out of a process's log; an object for each process, which sees all records in order.

    Its records name its key, or come from the thread of a subtask of an attempt of it. What is printed has no name: it
    counts while the job runs in the process, even where another job runs there, too.
    """

    def __init__(self, key: str) -> None:
        self._key = key
        self._name = re.compile(rf"""(?:\bjob |\bof |job='|"job": "){re.escape(key)}(?![\w-]|\.\w)""")
        self._attempts: set[str] = set()

    def takes(self, record: Record) -> bool:
        """Whether the record is about the job."""
        text = "\n".join(record.lines)
        if _NEW_PROCESS.search(text):
            self._attempts.clear()
        if record.is_printed:
            return bool(self._attempts)
        found = _STARTS.search(text)
        if found and found[2] == self._key:
            self._attempts.add(found[1])
        thread = _ATTEMPT.match(text)
        is_about = bool(self._name.search(text)) or bool(thread and thread[1] in self._attempts)
        found = _ENDED.search(text)
        if found and found[2] == self._key:
            self._attempts.discard(found[1])
        return is_about
