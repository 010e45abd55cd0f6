"""A function over records as a stage of a chain: in the task manager's own process, without a Spark job.

Its object is loaded once for each subtask and attempt. `open` is called before the first record, `close` at the end,
whatever the reason for it: when `open` has failed, too. What a snapshot has of the object's state is given back to it
between `open` and the first record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from lockgate_proto.messages import ObjectState, Operator, OperatorState, RecordCall, RecordForm, RecordFunction

from lockgate_taskmanager.spark.author_classes import AuthorClasses
from lockgate_taskmanager.spark.careful import Check, Outcome, may_be_a_record
from lockgate_taskmanager.spark.chain import named, require_unreserved, unpickled
from lockgate_taskmanager.spark.contents import without
from lockgate_taskmanager.spark.dead_letters import letters, record_text, spares
from lockgate_taskmanager.spark.declared import declared_frame
from lockgate_taskmanager.spark.functions.calls import Broadcast, Call, Failed, Filter, FlatMap, Map, RecordCalls
from lockgate_taskmanager.spark.functions.object_restore import Owner
from lockgate_taskmanager.spark.functions.object_state import StateOfObject
from lockgate_taskmanager.spark.functions.rows import WrongResult
from lockgate_taskmanager.spark.functions.vectorized import Vectorized
from lockgate_taskmanager.spark.isolation import Budget, isolate
from lockgate_taskmanager.spark.leaf import Content, LeafSpec, Session, passable_schema
from lockgate_taskmanager.spark.outages import is_outage
from lockgate_taskmanager.spark.outputs import Transform
from lockgate_taskmanager.spark.raised import Exited, lasts, raised
from lockgate_taskmanager.spark.user_code import caught, close_quietly, is_end, may_be_ended
from lockgate_taskmanager.spark.valid_text import require_valid
from lockgate_taskmanager.state.store import FrozenStore
from lockgate_taskmanager.task.program import (
    DataError,
    ProgramError,
    SnapshotOrder,
    StateUnreadable,
    UserCodeFailed,
    UserError,
)

_LONGEST_RECORD = 500


@dataclass(frozen=True, slots=True)
class FunctionContext:
    """What `open` of an author's object is given, see `lockgate.pipeline.records`."""

    job_key: str
    operator_id: str
    subtask: int
    parallelism: int
    attempt: int


class FunctionStage:
    """One function. Used from one thread."""

    def __init__(
        self, operator: Operator, context: FunctionContext, session: Session, is_warmup: bool, has_files: bool
    ) -> None:
        """is_warmup: there will be no records, so the object is not opened. has_files: see StateOfObject.

        Raises UserError when the function cannot be loaded, or its schema is invalid.
        """
        assert isinstance(operator.kind, RecordFunction)
        self.operators = (operator,)
        self._operator, self._kind, self._where = operator, operator.kind, named(operator)
        self._context, self._session, self._is_warmup = context, session, is_warmup
        self._classes = AuthorClasses()
        self._function: Any = unpickled(operator.kind.function, self._where, self._classes)
        self.restored: tuple[OperatorState, ...] = ()  # of a restored snapshot
        self._state = self._state_of_object(has_files)
        self._is_opened = False  # or has begun to be
        self._schema = pa.schema([])  # of the output
        self._calls: RecordCalls | None = None  # with one record at a time
        self._vectorized: Vectorized | None = None

    def open(self, restored_id: int) -> None:
        """Opens the author's object, and restores its state. restored_id: of the checkpoint that it is from.

        Raises UserError, UserCodeFailed, StateUnreadable, StorageUnavailable. Call `close` in any case.
        """
        if self._is_warmup:
            return
        self._is_opened = True
        if _has(self._function, "open"):
            with self._explained("open() of "), may_be_ended():
                self._function.open(self._context)
        if self._state is not None:
            with self._explained("restore_state() of "), may_be_ended():
                self._state.restore(self.restored, restored_id)
        elif self.restored:
            raise StateUnreadable(f"{self._where}: the snapshot has state of its object, and its object has none now")

    def snapshot(self, checkpoint_id: int, order: SnapshotOrder) -> tuple[FrozenStore, ...]:
        """The state of the object, if it has any, as it is now. Raises StateRefused, UserCodeFailed, Canceled."""
        return () if self._state is None else (self._state.snapshot(checkpoint_id, order),)

    def close(self) -> None:
        """Closes it, if `open` was called, even when that has failed; an error is only logged."""
        is_opened, self._is_opened = self._is_opened, False
        if is_opened and _has(self._function, "close"):
            close_quietly(self._function, self._where)

    def compile(self, spec: LeafSpec, tail: Transform | None) -> pa.Schema:
        """For records with these columns; returns the schema of the output. Raises UserError."""
        assert tail is None, "only Spark jobs compute more than their operators"
        assert spec.table is not None, "content is turned into a table before"
        kind, given = self._kind, spec.table
        self._schema = given if kind.call is RecordCall.FILTER else self._declared(kind.schema)
        if kind.form in (RecordForm.ARROW, RecordForm.PANDAS):
            self._vectorized = Vectorized(self._function, kind.call, kind.form, self._schema)
        else:
            self._calls = RecordCalls(self._function, self._call(), tuple(given.names))
        return self._schema

    def run(self, content: Content, check: Check) -> Outcome:
        """Calls the function. check: raises Canceled. Raises DataError, UserCodeFailed."""
        assert isinstance(content, pa.Table), "content is turned into a table before"
        if not content.num_rows:
            return Outcome([self._schema.empty_table()])
        return self._one_by_one(content, check) if self._calls is not None else self._by_table(content, check)

    def take_broadcast(self, records: pa.Table, check: Check) -> None:
        """Calls the object's `process_broadcast` with each record. check: raises Canceled.

        An error always ends the attempt, because the subtasks have to have the same state. Raises DataError,
        UserCodeFailed, UserError.
        """
        if not _has(self._function, "process_broadcast"):
            raise UserError(
                f"{self._where}: its object has no method process_broadcast(record) for the broadcast input"
            )
        calls = RecordCalls(self._function.process_broadcast, Broadcast(), tuple(records.column_names))
        with may_be_ended():
            try:
                calls.run(records, _may_not_spare, check)
            except Failed as error:
                cause = None if isinstance(error.reason, WrongResult) else error.reason
                raise self._error(error.reason, records.slice(error.number, 1), "process_broadcast(): ") from cause

    def _state_of_object(self, has_files: bool) -> StateOfObject | None:
        if self._kind.state is ObjectState.OBJECT_STATE_UNSPECIFIED:
            return None
        context = self._context
        owner = Owner(self._operator.id, self._where, context.subtask, context.parallelism, self._classes)
        return StateOfObject(self._function, self._kind.state, owner, has_files)

    def _call(self) -> Call:
        match self._kind.call:
            case RecordCall.MAP:
                return Map(self._schema)
            case RecordCall.FLAT_MAP:
                return FlatMap(self._schema)
            case _:
                return Filter()

    def _one_by_one(self, records: pa.Table, check: Check) -> Outcome:
        assert self._calls is not None
        with may_be_ended():
            try:
                called = self._calls.run(records, self._may_spare, check)
            except Failed as error:
                cause = None if isinstance(error.reason, WrongResult) else error.reason
                raise self._error(error.reason, records.slice(error.number, 1)) from cause
        outcome = Outcome([pa.Table.from_batches(called.batches, self._schema)])
        if called.failed:
            texts = [record_text(records.slice(number, 1)) for number in called.failed]
            errors = [_sentence(error) for error in called.failed.values()]
            outcome.failed.append((self._operator, letters(self._operator, texts, errors)))
        return outcome

    def _by_table(self, records: pa.Table, check: Check) -> Outcome:
        try:
            return Outcome([self._called(records)])
        except (DataError, UserCodeFailed) as error:
            if not spares(self._operator) or not may_be_a_record(error):
                raise
            return self._without_bad(records, error, check)

    def _without_bad(self, records: pa.Table, reason: ProgramError, check: Check) -> Outcome:
        def attempt(first: int, end: int) -> None:
            check()
            self._called(records.slice(first, end - first))

        bad = isolate(records.num_rows, attempt, Budget(), reason, may_be_a_record)
        spans = without(list(bad), 0, records.num_rows)
        kept = pa.concat_tables([records.slice(first, end - first) for first, end in spans]) if spans else None
        outcome = Outcome([self._schema.empty_table() if kept is None else self._called(kept)])
        if bad:
            texts = [record_text(records.slice(number, 1)) for number in bad]
            errors = [_of_table(error, self._where) for error in bad.values()]
            outcome.failed.append((self._operator, letters(self._operator, texts, errors)))
        return outcome

    def _called(self, records: pa.Table) -> pa.Table:
        assert self._vectorized is not None
        with may_be_ended():
            try:
                made = self._vectorized.run(records)
            except WrongResult as error:
                is_one_each = self._kind.call is not RecordCall.FLAT_MAP
                is_known = is_one_each and 0 <= error.index < records.num_rows
                raise self._error(error, records.slice(error.index, 1) if is_known else None) from None
            except BaseException as found:  # the author's code
                reason = caught(found)
                if is_end(reason) or isinstance(reason, ProgramError):
                    raise
                raise self._error(reason, None) from reason
        return require_valid(made, self._where)

    def _may_spare(self, error: Exception) -> bool:
        """Whether a record is left out. Raises the exception that ends the call for other reasons."""
        if is_end(error) or isinstance(error, ProgramError):
            raise error
        return spares(self._operator) and not is_outage(error) and not isinstance(error, Exited)

    def _error(self, error: Exception, record: pa.Table | None, method: str = "") -> ProgramError:
        """What to raise for an error of the function. record: the one that it failed on, None: not known."""
        place = "" if record is None else f"; the record: {_cut(record_text(record))}"
        text = f"{method}{_sentence(error)}{self._hint(error)}{place}"
        if isinstance(error, Exited):  # no other record, and no restart, would be right
            return UserError(f"{self._where}: {text}")
        if isinstance(error, WrongResult) or (lasts(type(error)) and not is_outage(error)):
            return DataError(text, where=self._where, operator_id=self._operator.id)
        return UserCodeFailed(f"{self._where}: {text}", is_environmental=is_outage(error))

    def _hint(self, error: Exception) -> str:
        """For functions that were written for something else than a record."""
        if not isinstance(error, AttributeError) or type(getattr(error, "obj", None)) is not dict:
            return ""
        return "; a record is a dict, as in record['word']; a function of a DataFrame belongs in transform()"

    def _declared(self, ddl: str) -> pa.Schema:
        owner = f"{self._where}: its schema"
        schema = passable_schema(declared_frame(self._session, ddl, owner), owner)
        require_unreserved(schema.names, owner)
        return schema

    @contextmanager
    def _explained(self, method: str) -> Iterator[None]:
        try:
            yield
        except ProgramError:
            raise
        except Exception as error:  # the author's code
            text = f"{self._where}: {method}{raised(error)}"
            if is_outage(error) or not lasts(type(error)):
                raise UserCodeFailed(text, is_environmental=is_outage(error)) from error
            raise UserError(text) from error


def _may_not_spare(error: Exception) -> bool:
    """No record is left out. Raises the exception that ends the call for other reasons."""
    if is_end(error) or isinstance(error, ProgramError):
        raise error
    return False


def _has(function: Callable[..., Any], method: str) -> bool:
    """Whether it is an object with such a method; a class has methods of its objects."""
    return not isinstance(function, type) and callable(getattr(function, method, None))


def _sentence(error: Exception) -> str:
    return f"the Python function {error}" if isinstance(error, WrongResult) else raised(error)


def _of_table(error: ProgramError, where: str) -> str:
    """The error without the operator and the record, which dead letters have columns for."""
    return str(error).removeprefix(f"{where}: ").partition("; the record: ")[0]


def _cut(record: str) -> str:
    return record if len(record) <= _LONGEST_RECORD else f"{record[:_LONGEST_RECORD]}..."
