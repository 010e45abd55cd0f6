"""The object of a function per record is opened once and closed once, whatever happens in between."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from typing import Any

import pyarrow as pa
import pytest
from lockgate_proto.messages import (
    ObjectForm,
    ObjectIndex,
    ObjectState,
    OnError,
    Operator,
    OperatorState,
    RecordCall,
    RecordForm,
    RecordFunction,
    StateKind,
)
from lockgate_taskmanager.spark.functions.stage import FunctionContext, FunctionStage
from lockgate_taskmanager.spark.leaf import Form, LeafSpec
from lockgate_taskmanager.state.backend import inline_handle
from lockgate_taskmanager.state.parts.stored_part import StoredPart, digest, indexed
from lockgate_taskmanager.task.program import DataError, StateUnreadable, UserCodeFailed, UserError
from pyspark import cloudpickle

CALLS: list[str] = []


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    CALLS.clear()


class Connected:
    """An author's object with a connection."""

    def open(self, context: FunctionContext) -> None:
        CALLS.append(f"open {context.operator_id}")

    def __call__(self, record: Any) -> Any:
        return record

    def close(self) -> None:
        CALLS.append("close")


class HalfOpen(Connected):
    """Fails after it has connected, and again when it is closed."""

    def open(self, context: FunctionContext) -> None:
        super().open(context)
        raise ConnectionError("no second server")

    def close(self) -> None:
        super().close()
        raise OSError("already away")


class Leaving(Connected):
    """Ends more than itself."""

    def close(self) -> None:
        super().close()
        raise SystemExit(3)


class Exits(Connected):
    """Ends more than itself at one record."""

    def __call__(self, record: Any) -> Any:
        if record["n"] == 2:
            sys.exit("no rate")
        return True


class Stops(Exits):
    """The same with a whole table, and before it has one."""

    def open(self, context: FunctionContext) -> None:
        super().open(context)
        raise KeyboardInterrupt

    def __call__(self, table: Any) -> Any:
        raise asyncio.CancelledError(str(table.num_rows))


class Restored(Connected):
    """Has state; cannot be restored from a text, nor without a server from a negative number."""

    def snapshot_state(self) -> Any:
        return 0

    def restore_state(self, state: Any) -> None:
        CALLS.append(f"restore {state + 0}")
        if state < 0:
            raise ConnectionError("no server")


def stage(
    function: Any,
    *,
    is_warmup: bool = False,
    state: ObjectState = ObjectState.OBJECT_STATE_UNSPECIFIED,
    form: RecordForm = RecordForm.RECORDS,
    on_error: OnError = OnError.FAIL,
) -> FunctionStage:
    kind = RecordFunction(cloudpickle.dumps(function), "f", RecordCall.FILTER, form, state=state)
    operator = Operator(id="f", kind=kind, on_error=on_error)
    session: Any = None  # asked for the declared schema only
    return FunctionStage(operator, FunctionContext("job", "f", 0, 1, 1), session, is_warmup, has_files=True)


def test_an_object_is_closed_once_and_only_after_it_was_opened() -> None:
    made = stage(Connected())
    made.close()
    assert CALLS == []
    made.open(0)
    made.close()
    made.close()
    assert CALLS == ["open f", "close"]


def test_an_object_that_failed_to_open_is_closed_and_the_first_error_is_the_one_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    made = stage(HalfOpen())
    with pytest.raises(UserCodeFailed, match=r"open\(\) of .* raised ConnectionError: no second server"):
        made.open(0)
    with caplog.at_level(logging.WARNING):
        made.close()
    assert CALLS == ["open f", "close"]
    assert [record.getMessage() for record in caplog.records] == ["operator 'f': close() raised OSError: already away"]


def test_a_close_that_exits_ends_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    made = stage(Leaving())
    made.open(0)
    with caplog.at_level(logging.WARNING):
        made.close()
    assert [record.getMessage() for record in caplog.records] == ["operator 'f': close() raised SystemExit: 3"]


NUMBERS = pa.table({"n": [1, 2, 3]})
INSTEAD = "let it raise an error instead of ending the process"


def run(made: FunctionStage, table: pa.Table = NUMBERS) -> pa.Table:
    made.compile(LeafSpec(Form.TABLE, table=table.schema), None)
    (found,) = made.run(table, lambda: None).tables
    return found


@pytest.mark.parametrize("on_error", [OnError.FAIL, OnError.SKIP])
def test_a_function_that_exits_fails_the_job_with_its_record(on_error: OnError) -> None:
    with pytest.raises(UserError) as raised:
        run(stage(Exits(), on_error=on_error))
    text = str(raised.value)
    assert text.startswith("operator 'f': the Python function raised SystemExit: no rate (line "), text
    assert text.endswith(f' of test_function_objects.py, in __call__); {INSTEAD}; the record: {{"n":2}}'), text
    assert raised.value.__cause__ is not None
    assert isinstance(raised.value.__cause__.__cause__, SystemExit), "its traceback is shown"


@pytest.mark.parametrize("on_error", [OnError.FAIL, OnError.SKIP])
def test_so_does_one_over_tables(on_error: OnError) -> None:
    made = stage(Stops(), form=RecordForm.ARROW, on_error=on_error)
    with pytest.raises(UserError, match="operator 'f': the Python function raised CancelledError: 3 "):
        run(made)


def test_so_does_open_on_the_thread_of_a_subtask() -> None:
    made, found = stage(Stops()), list[BaseException]()

    def work() -> None:
        try:
            made.open(0)
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(60)
    assert [type(error) for error in found] == [UserError]
    assert "open() of the Python function raised KeyboardInterrupt (line " in str(found[0])


def test_ctrl_c_stays_what_it_is() -> None:
    """`lockgate run` calls functions in the main thread, where a signal arrives."""
    with pytest.raises(KeyboardInterrupt):
        stage(Stops()).open(0)


@pytest.mark.parametrize("form", [RecordForm.ARROW, RecordForm.PANDAS])
def test_a_filter_over_tables_names_the_first_record_that_it_has_no_boolean_for(form: RecordForm) -> None:
    with pytest.raises(DataError) as raised:
        run(stage(lambda _: pa.array([None, 7, 8]), form=form))
    assert str(raised.value) == (
        "operator 'f': the Python function returned 7 of type int, in an array of int64; a filter returns an array of"
        ' booleans; the record: {"n":2}'
    )


def test_a_warm_up_opens_and_closes_nothing() -> None:
    made = stage(Connected(), is_warmup=True)
    made.open(0)
    made.close()
    assert CALLS == []


def stored(value: Any) -> OperatorState:
    data = cloudpickle.dumps(value)
    whole = ObjectIndex(ObjectForm.OBJECT_WHOLE, "a.B", 0, 1)
    index, files = indexed(whole, {"": StoredPart(inline_handle(data), 0, len(data), digest(data))})
    return OperatorState("f", StateKind.OBJECT_STATE, inline_handle(index), files=files)


def test_state_is_restored_into_the_open_object() -> None:
    made = stage(Restored(), state=ObjectState.OBJECT_STATE_FIXED)
    made.restored = (stored(7),)
    made.open(1)
    made.close()
    assert CALLS == ["open f", "restore 7", "close"]


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        ("a", UserError, r"restore_state\(\) of the Python function raised TypeError: can only concatenate str"),
        (-1, UserCodeFailed, r"restore_state\(\) of the Python function raised ConnectionError: no server"),
    ],
)
def test_an_object_that_does_not_take_its_state_is_one_sentence(value: Any, kind: type[Exception], text: str) -> None:
    made = stage(Restored(), state=ObjectState.OBJECT_STATE_FIXED)
    made.restored = (stored(value),)
    with pytest.raises(kind, match=text) as caught:
        made.open(1)
    made.close()
    assert "\n" not in str(caught.value)
    assert CALLS[-1] == "close"


def test_state_is_not_dropped_when_the_object_has_none() -> None:
    made = stage(Connected())
    made.restored = (stored(7),)
    with pytest.raises(StateUnreadable, match="the snapshot has state of its object, and its object has none now"):
        made.open(1)


def test_the_message_of_a_record_that_python_cannot_hold_names_it_and_blames_no_function() -> None:
    made = stage(lambda _: True)
    at = pa.array([253_402_300_800_000_000], pa.int64()).cast(pa.timestamp("us"))
    table = pa.table({"at": at})
    made.compile(LeafSpec(Form.TABLE, table=table.schema), None)
    with pytest.raises(DataError) as raised:
        made.run(table, lambda: None)
    assert str(raised.value).startswith("operator 'f': the record has a value in column 'at', which is timestamp[us], ")
    assert str(raised.value).endswith('; the record: {"at":"+10000-01-01T00:00:00.000000"}')
