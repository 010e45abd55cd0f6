"""Turns Spark's exceptions into sentences for the author of a pipeline."""

from __future__ import annotations

import builtins
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import (
    AnalysisException,
    ArithmeticException,
    ArrayIndexOutOfBoundsException,
    DateTimeException,
    IllegalArgumentException,
    NumberFormatException,
    ParseException,
    PySparkException,
    PythonException,
    QueryContextType,
    SparkNoSuchElementException,
    SparkRuntimeException,
    SparkUpgradeException,
    UnknownException,
    UnsupportedOperationException,
)
from pyspark.errors.exceptions.captured import CapturedException, convert_exception
from pyspark.errors.exceptions.connect import SparkConnectException

from lockgate_taskmanager.spark.outages import is_type_of_outage, names_outage
from lockgate_taskmanager.spark.raised import BY_INPUT, RAISED, UNREADABLE_VALUE, is_exit, lasts, raised_in
from lockgate_taskmanager.spark.sql_place import sql_place
from lockgate_taskmanager.task.program import DataError, Defect, ProgramError, UserCodeFailed, UserError

_USER = (
    AnalysisException,
    ArithmeticException,
    ArrayIndexOutOfBoundsException,
    DateTimeException,
    IllegalArgumentException,
    NumberFormatException,
    ParseException,
    PythonException,
    SparkNoSuchElementException,
    SparkRuntimeException,
    SparkUpgradeException,
    UnsupportedOperationException,
)
_CONDITION = re.compile(r"^\[[A-Z0-9_.]+\]\s*")
_SQLSTATE = re.compile(r"\s*SQLSTATE: \w+.*", re.DOTALL)
_PYTHON_ERROR = re.compile(r"^((?:\w+\.)*\w*(?:Error|Exception|Exit|Interrupt|Warning)\b.*)$", re.MULTILINE)
_PYTHON_OTHER = re.compile(
    r"^([A-Za-z_][\w.]*: .*|[A-Za-z_][\w.]*)$", re.MULTILINE
)  # an exception class with another kind of name
_OTHER_PYTHON = re.compile(r"Python in worker has different version: (\S+) than that in driver: ([\d.]+\d)")
_NO_PYTHON = re.compile(r'Cannot run program "([^"]+)"')
# SQLSTATE classes that Spark uses for errors of data and expressions: 0A unsupported, 21 cardinality, 22 data, 23
# constraint, 38 and 39 a function of the author's, 42 the query, 54 a limit, P0 raise_error(). Errors of storage,
# memory, the cluster and Spark itself have others (KD, 53, 56, 58, 82, HY, XX).
_DATA_STATES = frozenset({"0A", "21", "22", "23", "38", "39", "42", "54", "P0"})
_STATE_CLASS = re.compile(r"\bSQLSTATE: (\w{2})")
# For errors without an SQLSTATE: the exceptions that Spark raises in tasks for `_USER`.
_DATA_KINDS = frozenset(
    {
        "org.apache.spark.SparkArithmeticException",
        "org.apache.spark.SparkArrayIndexOutOfBoundsException",
        "org.apache.spark.SparkDateTimeException",
        "org.apache.spark.SparkIllegalArgumentException",
        "org.apache.spark.SparkNoSuchElementException",
        "org.apache.spark.SparkNumberFormatException",
        "org.apache.spark.SparkRuntimeException",
        "org.apache.spark.SparkUnsupportedOperationException",
        "org.apache.spark.SparkUpgradeException",
        "org.apache.spark.api.python.PythonException",
        "org.apache.spark.sql.AnalysisException",
    }
)
_LOST_SESSION = re.compile(r"INVALID_HANDLE\.SESSION|NO_ACTIVE_SESSION|server side session identifier")
_SILENT = frozenset({"UNAVAILABLE", "DEADLINE_EXCEEDED"})
_GRPC_DETAILS = re.compile(r'^<_.*?details = "([^\n]+)"$', re.DOTALL | re.MULTILINE)  # a gRPC error as a string
_TRACEBACK = "Traceback (most recent call last)"
_RAISED = re.compile(rf"{RAISED}([\w.]+)")
_SQL_CONTEXT = re.compile(r"^== SQL.*==\n(?P<line>.*)\n(?P<marks> *\^+)", re.MULTILINE)
_DEFECT = re.compile(
    r"^\[INTERNAL_ERROR\]|^(java\.lang\.(ArrayIndexOutOfBounds|ArrayStore|ClassCast|IndexOutOfBounds|NegativeArraySize"
    r"|NullPointer|UnsupportedOperation)Exception|scala\.MatchError)"
)
_OF_A_FUTURE = "java.util.concurrent.ExecutionException"
_WAITED_FOR = ("Exception thrown in awaitResult", f"{_OF_A_FUTURE}: Exception thrown by job")
# Py4J's text has the JVM's below a line of its own: `: CLASS: MESSAGE`, the stack, and so for each cause
_THROWN = re.compile(r"^(?:Caused by)?: (?:[\w.$]+: )?(.+)$", re.MULTILINE)
_STAGE_FAILURE = re.compile(r"\): ([\w.$]+(?:Exception|Error)): (.*)")


class EngineError(ProgramError):
    """Spark itself cannot work (no Java, an unreachable master, a lost session): not the job's fault."""


class EngineDefect(EngineError, Defect):
    """Spark failed on its input because of a bug in Spark."""


@contextmanager
def explained(
    where: str, columns: Sequence[str] = (), *, on_records: bool = False, in_query: bool = False
) -> Iterator[None]:
    """Turns Spark's exceptions inside the block into those of `task.program`, with `where` in front.

    UserError for errors that do not depend on a record, DataError and UserCodeFailed for errors on records, EngineError
    for the rest. where: names the operator; columns: the columns of the operator's input, for "unknown column".
    on_records: the block runs over records; otherwise it makes a plan, and only failed tasks involve records.
    in_query: of the author's SQL, so that a position in it helps.
    """
    try:
        yield
    except PySparkException as error:
        raise _translated(where, error, columns, on_records, _place(error) if in_query else "") from error
    except Py4JError as error:
        _refuse_python(where, str(error), error)
        known = _known(error)
        if known is not None:
            raise _translated(where, known, columns, on_records) from error
        if refused := _refused_record(str(error)):
            raise on_data(where, refused, error) from error
        raise EngineError(f"{where}: Spark failed: {_of_the_jvm(str(error))}") from error


def _translated(
    where: str, error: PySparkException, columns: Sequence[str], on_records: bool, place: str = ""
) -> ProgramError:
    _refuse_python(where, str(error), error)
    text = sentence(error, columns)
    if _is_data_error(str(error)) or (on_records and isinstance(error, _USER) and not _is_wrong_query(error)):
        return on_data(where, text, error)
    if isinstance(error, _USER):
        return UserError(f"{where}: {text.removesuffix('.') + place if place else text}")
    return (EngineDefect if _is_defect(str(error)) else EngineError)(f"{where}: {text}")


def _known(error: Py4JError) -> PySparkException | None:
    """PySpark's form of a Spark exception; some PySpark calls, and a future, let the JVM's exception through."""
    if not isinstance(error, Py4JJavaError):
        return None
    thrown = error.java_exception
    if thrown.toString().startswith(_OF_A_FUTURE) and thrown.getCause() is not None:
        thrown = thrown.getCause()
    found = convert_exception(thrown)
    return None if isinstance(found, UnknownException) else found


def on_data(where: str, text: str, error: Exception) -> ProgramError:
    """The error to raise for an exception caused by records. text: `sentence` of it."""
    if isinstance(error, PythonException) or _TRACEBACK in str(error):
        name = _RAISED.match(text)
        kind = _standard_type(name[1]) if name else None
        if is_exit(kind):
            return UserError(f"{where}: {text}")
        is_known = kind is not None and lasts(kind) and not is_type_of_outage(kind)
        if not (is_known or text.startswith(UNREADABLE_VALUE) or BY_INPUT in str(error)):
            return UserCodeFailed(f"{where}: {text}", is_environmental=names_outage(name[1] if name else ""))
    found = _SQL_CONTEXT.search(str(error))
    line, marks = (found["line"], found["marks"]) if found else ("", "")
    return DataError(text, where=where, query=line, fragment=line[marks.find("^") : len(marks)])


def _standard_type(name: str) -> type | None:
    """A type of Python's own by its name, such as `json.decoder.JSONDecodeError`. Nothing is imported: the name is text
    from outside, and the modules that matter are there.
    """
    module, _, last = name.rpartition(".")
    is_standard = module.partition(".")[0] in sys.stdlib_module_names
    found = getattr(sys.modules.get(module) if is_standard else None if module else builtins, last, None)
    return found if isinstance(found, type) else None


def is_authors(error: PySparkException) -> bool:
    """Whether code that calls PySpark is wrong, as far as the error's class tells: it comes from PySpark itself, or is
    of a kind that does not depend on Spark's surroundings.
    """
    return isinstance(error, _USER) or not isinstance(error, CapturedException | SparkConnectException)


def _is_wrong_query(error: PySparkException) -> bool:
    return isinstance(error, AnalysisException | ParseException)


def _is_defect(text: str) -> bool:
    failure = _STAGE_FAILURE.search(text)
    if failure is None or "SPARK_JOB_CANCELLED" in text:
        return False
    return bool(_DEFECT.match(failure.group(1)) or _DEFECT.match(failure.group(2)))


def _refuse_python(where: str, text: str, error: Exception) -> None:
    """Raises EngineError when the executors of a cluster have no Python, or another version."""
    other = _OTHER_PYTHON.search(text)
    missing = _NO_PYTHON.search(text)
    if other is None and missing is None:
        return
    found = (
        f"is {other[1]}, and the task manager's {other[2]}" if other else f"does not exist: {missing and missing[1]}"
    )
    raise EngineError(
        f"{where}: the executors' Python {found}; install the task manager's version there with pyarrow and pandas,"
        " and name it with the option spark.pyspark.python"
    ) from error


def is_forgotten(error: Exception) -> bool:
    """Whether a Spark Connect server reports that it no longer has the session.

    error: PySpark's, or gRPC's own, which the client lets through when a session is cloned.
    """
    condition = error.getCondition() if isinstance(error, PySparkException) else ""
    return not isinstance(error, _USER) and bool(_LOST_SESSION.search(f"{condition} {error}"))


def lost_session(error: Exception) -> str:
    """A sentence when a Spark Connect server has lost the session or does not answer; empty for other errors."""
    if is_forgotten(error):
        return "the Spark Connect server has lost the session (it was restarted, or has ended it)"
    status = getattr(error, "getGrpcStatusCode", None) or getattr(error, "code", None)  # PySpark's name, gRPC's
    if status is not None and status().name in _SILENT and not isinstance(error, _USER):
        return "the Spark Connect server does not answer"
    return ""


def sentence(error: PySparkException, columns: Sequence[str] = ()) -> str:
    """The error's message, without Spark's error codes, plans and stack traces."""
    lost = lost_session(error)
    if lost:
        return lost
    condition = error.getCondition() or ""
    if condition.startswith("UNRESOLVED_COLUMN"):
        name = (error.getMessageParameters() or {}).get("objectName", "?").replace("`", "")
        available = ", ".join(columns) if columns else "none"
        return f"unknown column '{name}'; the input has the columns: {available}"
    text = str(error)
    if isinstance(error, PythonException) or _TRACEBACK in text:
        found = _PYTHON_ERROR.findall(text) or _PYTHON_OTHER.findall(text.rpartition(_TRACEBACK)[2])[:1]
        if found:
            return raised_in(text, found[-1].strip())
    details = _GRPC_DETAILS.search(text)
    if details:
        return details[1]
    failure = _STAGE_FAILURE.search(text)
    if failure:
        return _CONDITION.sub("", _first_line(_SQLSTATE.sub("", failure.group(2))))
    return _CONDITION.sub("", _first_line(_SQLSTATE.sub("", text)))


def _place(error: PySparkException) -> str:
    """Of an error in the text of a query."""
    if not _is_wrong_query(error):
        return ""
    contexts = error.getQueryContext() or ()  # of an expression of the DataFrame API, too, which has no place in a text
    fragment = next((found.fragment() for found in contexts if found.contextType() is QueryContextType.SQL), "")
    return sql_place(str(error), fragment)


def _refused_record(text: str) -> str:
    """A task's message about its data, in an error that PySpark has no exception for (such as from parse_json); or
    "".
    """
    waiting, _, cause = text.partition("\nCaused by: ")
    message = cause.partition("\n\tat ")[0]
    state = _STATE_CLASS.search(message)
    if not any(sign in waiting for sign in _WAITED_FOR) or not state or state.group(1) not in _DATA_STATES:
        return ""
    return _CONDITION.sub("", _first_line(_SQLSTATE.sub("", message.partition(": ")[2])))


def _is_data_error(text: str) -> bool:
    """A task failed because of its data: it would fail on the same data again.

    A killed Python worker or a file that could not be read are not such errors. They are plain SparkExceptions, as many
    data errors are, so the class alone does not tell them apart.
    """
    failure = _STAGE_FAILURE.search(text)
    if failure is None or "SPARK_JOB_CANCELLED" in text:
        return False
    message = text[failure.start() :].partition("\n\tat ")[0]  # text below the stack trace belongs to other errors
    state = _STATE_CLASS.search(message)
    return state.group(1) in _DATA_STATES if state else failure.group(1) in _DATA_KINDS


def _of_the_jvm(text: str) -> str:
    """What the JVM says in a Py4J error: why a task has failed, or the innermost cause."""
    failure, thrown = _STAGE_FAILURE.search(text), _THROWN.findall(text)
    words = failure.group(2) if failure else thrown[-1] if thrown else text
    return _CONDITION.sub("", _first_line(_SQLSTATE.sub("", words)))


def _first_line(text: str) -> str:
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    return lines[0] if lines else "unknown error"
