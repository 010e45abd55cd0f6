"""What the author's Python code raised, in which line, and its traceback. Also used in Spark's Python workers.

A frame is the author's unless it belongs to Python, to an installed package or to Lockgate. The last one counts: what a
library raises is blamed on the line that called it.
"""

from __future__ import annotations

import re
import traceback
from pathlib import PurePath

from lockgate_taskmanager.spark.outages import is_outage

_LONGEST_CHAIN = 10
UNREADABLE_VALUE = "the record has a value in column"
"""How the sentence begins for a record that a function could not be called with."""
_NOT_ITS_FAULT = "UnreadableRecordError"  # of `functions.rows`, which has this sentence
_EXITS = frozenset({SystemExit.__name__, KeyboardInterrupt.__name__})
_JAVA = "\n\tat "  # what follows the traceback in a message of Spark's
_FRAME = re.compile(r'^  File "([^"]+)", line (\d+), in (.+)$', re.MULTILINE)
_TRACEBACK = "Traceback (most recent call last)"
_NOT_THE_AUTHORS = re.compile(
    r"^<frozen|/(site-packages|dist-packages|python3\.\d+|pyspark\.zip|python/pyspark|lockgate_taskmanager|lockgate/preview)/"
)


RAISED = "the Python function raised "
BY_INPUT = "(raised because of the input)"
"""Follows the traceback of an error of the author's code in a Python worker, if its type `lasts`: of a type that the
task manager may not know, such as an author's own.
"""


class Exited(Exception):
    """Stands for `error`, an exception of the author's code that would end a process elsewhere, such as SystemExit."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(with_type(error))
        self.error = self.__cause__ = error


_LASTING = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    Exited,
    LookupError,
    NameError,
    NotImplementedError,
    RecursionError,
    StopIteration,
    TypeError,
    ValueError,
)
_PLAIN = (Exception, RuntimeError)
"""Exact types, without subclasses from libraries: code that calls nothing raises these because of its input."""


def lasts(kind: type) -> bool:
    """Whether code raises such an exception because of its input; other exceptions may come from its environment."""
    return issubclass(kind, _LASTING) or kind in _PLAIN


def mark(error: BaseException) -> None:
    """Notes for the task manager that the error `lasts`, if it does."""
    if lasts(type(error)) and not is_outage(error) and BY_INPUT not in getattr(error, "__notes__", ()):
        error.add_note(BY_INPUT)


def raised(error: BaseException) -> str:
    """The sentence for an exception."""
    error = error.error if isinstance(error, Exited) else error
    return raised_text(with_type(error), _frames(error))


def with_type(error: BaseException) -> str:
    """An exception's text, with its type in front."""
    error = error.error if isinstance(error, Exited) else error
    return f"{type(error).__name__}: {error}".removesuffix(": ")


def is_exit(kind: object) -> bool:
    """Whether it is the type of exceptions that Exited stands for."""
    return isinstance(kind, type) and issubclass(kind, BaseException) and not issubclass(kind, Exception)


def line_of(error: BaseException) -> str:
    """` (line 7 of words.py, in parse)`, or "" for an exception that did not come from the author's code."""
    return _line(_frames(error))


def raised_in(text: str, error: str) -> str:
    """The sentence for a message that contains a traceback. error: type and text of the exception, as found in it."""
    last = text.rpartition(_TRACEBACK)[2]
    return raised_text(error, [(file, int(line), name) for file, line, name in _FRAME.findall(last)])


def raised_text(error: str, frames: list[tuple[str, int, str]]) -> str:
    """frames: (file, line, function), outermost first."""
    kind, _, sentence = error.partition(": ")
    if kind.rpartition(".")[2] == _NOT_ITS_FAULT:
        return sentence
    instead = "; let it raise an error instead of ending the process" if kind in _EXITS else ""
    return f"{RAISED}{error}{_line(frames)}{instead}"


def _frames(error: BaseException) -> list[tuple[str, int, str]]:
    return [(frame.filename, frame.lineno or 0, frame.name) for frame in traceback.extract_tb(error.__traceback__)]


def _line(frames: list[tuple[str, int, str]]) -> str:
    own = [frame for frame in frames if _is_authors(frame[0])]
    if not own:
        return ""
    file, line, name = own[-1]
    return f" (line {line} of {PurePath(file).name}{'' if name.startswith('<') else f', in {name}'})"


def traceback_of(error: BaseException) -> str:
    """The traceback of the author's code that an error comes from, from its first frame on; "" if there is none.

    Of this error and those that led to it, the newest with the author's frames counts.
    """
    cause: BaseException | None = error
    for _ in range(_LONGEST_CHAIN):
        if cause is None:
            break
        if found := _traceback_in(str(cause)) or _own_traceback(cause):
            return found
        cause = cause.__cause__ or cause.__context__
    return ""


def _own_traceback(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    first = next((at for at, frame in enumerate(frames) if _is_authors(frame.filename)), None)
    if first is None:
        return ""
    lines = [f"{_TRACEBACK}:\n", *traceback.format_list(frames[first:]), *traceback.format_exception_only(error)]
    return "".join(lines).rstrip()


def _traceback_in(text: str) -> str:
    """Out of the message of an error in a Python worker: the last traceback, without the worker's own frames."""
    _, found, last = text.rpartition(_TRACEBACK)
    body = last.partition(_JAVA)[0]
    own = [frame for frame in _FRAME.finditer(body) if _is_authors(frame[1])] if found else []
    return f"{_TRACEBACK}:\n{body[own[0].start() :]}".rstrip() if own else ""


def _is_authors(file: str) -> bool:
    return not _NOT_THE_AUTHORS.search(file)
