"""User transforms and edge outputs as functions from DataFrame to DataFrame."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from lockgate_proto.messages import (
    EventTime,
    IntervalJoin,
    JoinSide,
    Operator,
    PythonTransform,
    SqlTransform,
    WindowProcess,
)
from lockgate_proto.reserved import is_reserved
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from lockgate_taskmanager.spark import connect, event_time
from lockgate_taskmanager.spark.actions import refused
from lockgate_taskmanager.spark.author_classes import AuthorClasses
from lockgate_taskmanager.spark.errors import explained, is_authors, lost_session, sentence
from lockgate_taskmanager.spark.leaf import DataFrame
from lockgate_taskmanager.spark.outages import is_outage
from lockgate_taskmanager.spark.passable import key_refusal
from lockgate_taskmanager.spark.raised import line_of, raised, with_type
from lockgate_taskmanager.spark.session import is_connect
from lockgate_taskmanager.spark.user_code import may_be_ended
from lockgate_taskmanager.state.layout import EVENT_MICROS, EVENT_TIME, HASH
from lockgate_taskmanager.state.windows.shape import shape_of
from lockgate_taskmanager.task.program import Canceled, ProgramError, UserCodeFailed, UserError

INPUT_VIEW = "input"


def named(operator: Operator) -> str:
    """The operator in messages: its name, which several operators may share, and its id where it adds information."""
    if operator.name in ("", operator.id):
        return f"operator '{operator.id}'"
    return f"operator '{operator.name}' (id '{operator.id}')"


@contextmanager
def naming(operator: Operator) -> Iterator[None]:
    """Puts the operator in front of the message of a UserError, unless it is there already."""
    try:
        yield
    except UserError as error:
        if str(error).startswith(named(operator)):
            raise
        raise UserError(f"{named(operator)}: {error}") from error


def transform(operator: Operator) -> Callable[[DataFrame], DataFrame]:
    """The function of a transform. Raises UserError when a Python function cannot be unpickled."""
    match operator.kind:
        case EventTime() as times:
            return event_time.Declaration(times, named(operator))
        case SqlTransform(query):
            return lambda frame: _sql(frame, query, named(operator))
        case PythonTransform(pickled):
            function = unpickled(pickled, named(operator))
            return lambda frame: _python(frame, function, named(operator))
        case kind:
            raise AssertionError(f"{type(kind).__name__} is no transform")


def query_of(operator: Operator) -> str:
    """Its SQL text; "" where it has none."""
    match operator.kind:
        case SqlTransform(query=text) | EventTime(expression=text):
            return text
        case _:
            return ""


def queries_of(operators: Sequence[Operator]) -> str:
    """Their SQL, one text after the other."""
    return "\n".join(map(query_of, operators))


def unpickled(data: bytes, where: str, classes: AuthorClasses | None = None) -> Callable[..., Any]:
    """A function pickled by the client. classes: as for `loaded`. Raises UserError when it cannot be loaded here."""
    function = loaded(data, where, "its function", classes=classes)
    if not callable(function):
        raise UserError(f"{where}: its function is a {type(function).__name__}, which cannot be called")
    return function  # type: ignore[no-any-return]


def loaded(
    data: bytes, where: str, subject: str, methods: Sequence[str] = (), classes: AuthorClasses | None = None
) -> Any:
    """An object pickled by the client that has `methods`. Raises UserError when it cannot be loaded here.

    classes: get the author's classes that come with it; None: nothing else will use them.
    """
    try:
        with may_be_ended():
            found = (classes or AuthorClasses()).loads(data)
    except Canceled:
        raise
    except Exception as error:  # unpickling runs the author's imports
        raise UserError(
            f"{where}: {subject} cannot be loaded on the task manager ({with_type(error)});"
            " install the modules it imports there, with the same Python version"
        ) from error
    missing = [name for name in methods if not callable(getattr(found, name, None))]
    if missing:
        raise UserError(f"{where}: {subject} is a {type(found).__name__}, which has no method {missing[0]}()")
    return found


def key_group_sql(keys: Sequence[str], max_parallelism: int) -> str:
    """SQL of a record's key group; the only definition, so that every vertex agrees."""
    return f"CAST(pmod({hash_sql(keys)}, {max_parallelism}) AS INT)"


def hash_sql(keys: Sequence[str]) -> str:
    """SQL of the hash of a record's keys."""
    return f"xxhash64({', '.join(map(quoted, keys))})" if keys else "CAST(0 AS BIGINT)"


def quoted(name: str) -> str:
    """A column name as an SQL identifier."""
    return "`" + name.replace("`", "``") + "`"


def joinable(operator: Operator, side: JoinSide, where: str) -> Callable[[DataFrame], DataFrame]:
    """Adds the columns by which an interval join finds rows: the hash of their keys, and their time in milli- and
    microseconds.

    Raises UserError when called with unknown columns.
    """
    kind = operator.kind
    assert isinstance(kind, IntervalJoin)
    is_left = side is JoinSide.LEFT
    keys, time = (kind.left_keys, kind.left_time) if is_left else (kind.right_keys, kind.right_time)
    reach_ms = max(abs(kind.lower_ms), abs(kind.upper_ms))

    def build(frame: DataFrame) -> DataFrame:
        require_columns(frame, keys, where)
        millis = event_time.usable_millis_sql(frame, time, reach_ms, named(operator))
        micros = event_time.micros_sql(frame, time, named(operator))
        with explained(named(operator), frame.columns):
            added = (f"{hash_sql(keys)} AS {HASH}", f"{millis} AS {EVENT_TIME}", f"{micros} AS {EVENT_MICROS}")
            return frame.selectExpr(*map(quoted, frame.columns), *added)

    return build


def held_by_windows(operator: Operator, where: str) -> Callable[[DataFrame], DataFrame]:
    """Adds the columns by which windows hold records: the hash of their keys, and their time, NULL for none.

    By processing time, the subtask that keeps the windows adds the time.

    Raises UserError when called with unknown columns.
    """
    kind = operator.kind
    assert isinstance(kind, WindowProcess)
    assert kind.window is not None
    if kind.window.processing_time:
        return hashed(kind.keys, where)
    expression, shape = kind.window.event_time, shape_of(kind.window)

    def build(frame: DataFrame) -> DataFrame:
        require_columns(frame, kind.keys, where)
        columns = frame.columns
        timed = event_time.with_times(frame, expression, shape, named(operator))
        with explained(named(operator), columns):
            return timed.selectExpr(*map(quoted, columns), f"{hash_sql(kind.keys)} AS {HASH}", EVENT_TIME)

    return build


def hashed(keys: Sequence[str], where: str) -> Callable[[DataFrame], DataFrame]:
    """Adds the hash of the keys, by which rows of state are found. Raises UserError for unknown columns."""

    def build(frame: DataFrame) -> DataFrame:
        require_columns(frame, keys, where)
        with explained(where, frame.columns):
            return frame.selectExpr(*map(quoted, frame.columns), f"{hash_sql(keys)} AS {HASH}")

    return build


def with_key_groups(columns: Sequence[tuple[str, Sequence[str], int, str]]) -> Callable[[DataFrame], DataFrame]:
    """Adds key group columns. columns: (new column, keys, max parallelism, where for messages)."""

    def build(frame: DataFrame) -> DataFrame:
        added = []
        for name, keys, max_parallelism, where in columns:
            require_columns(frame, keys, where)
            added.append(f"{key_group_sql(keys, max_parallelism)} AS {quoted(name)}")
        with explained("key groups", frame.columns):
            return frame.selectExpr(*map(quoted, frame.columns), *added)

    return build


def require_columns(frame: DataFrame, keys: Sequence[str], where: str) -> None:
    """Raises UserError when `frame` cannot be partitioned by these keys.

    A key may be unknown (Spark ignores case) or of a type that cannot be a key, or a column may have a reserved name.
    """
    require_unreserved(frame.columns, where, keys)
    types = {field.name.lower(): field.dataType for field in frame.schema.fields}
    for key in keys:
        kind = types.get(key.lower())
        if kind is None:
            raise UserError(f"{where}: unknown key column '{key}'; the columns are: {', '.join(frame.columns)}")
        if why := key_refusal(kind):
            raise UserError(f"{where}: key column '{key}' {why}")


def require_unreserved(columns: Sequence[str], where: str, keys: Sequence[str] = ()) -> None:
    """Raises UserError for a column with a name that Lockgate reserves."""
    for name in (*columns, *keys):
        if is_reserved(name, is_key=name in keys):
            raise UserError(
                f"{where}: the column name '{name}' is reserved for a column that Lockgate adds; rename it with AS"
            )


def _sql(frame: DataFrame, query: str, where: str) -> DataFrame:
    with explained(where, frame.columns, in_query=True):
        if is_connect(frame):
            result = connect.queried(frame, query, INPUT_VIEW)
        else:
            frame.createOrReplaceTempView(INPUT_VIEW)
            result = frame.sparkSession.sql(query)
        result.columns  # noqa: B018  Spark Connect analyzes only when asked
        return result


def _python(frame: DataFrame, function: Callable[..., Any], where: str) -> DataFrame:
    with explained(where, frame.columns):
        try:
            with refused(frame, where), may_be_ended():
                result = function(frame)
        except (Py4JError, ProgramError):
            raise
        except PySparkException as error:
            if lost_session(error) or not is_authors(error):
                raise
            raise UserError(f"{where}: {sentence(error, frame.columns)}{line_of(error)}") from error
        except Exception as error:  # the author's code
            text = f"{where}: {raised(error)}"
            if is_outage(error):
                raise UserCodeFailed(text, is_environmental=True) from error
            raise UserError(text) from error
        if not hasattr(result, "toArrow"):
            raise UserError(f"{where}: the Python function returned a {type(result).__name__}, not a DataFrame")
        result.columns  # noqa: B018
        return result
