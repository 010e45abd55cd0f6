"""A keyed process function: its rows in a row store, one Spark job for its calls in each micro-batch.

    records --the payloads of their keys--> Spark: the function --> what it puts out
                                                     |--> changed payloads --> row store

Only the rows of keys that occur, or whose timers are due, travel to Spark and back. Timers and expiry use the times
that the store keeps with each payload.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lockgate_common.json_input import parse_json
from lockgate_proto.messages import DeclaredState, KeyedProcess, Operator, OperatorState, StateShape
from pyspark import cloudpickle

from lockgate_taskmanager.spark import outages, raised
from lockgate_taskmanager.spark.careful import may_be_a_record
from lockgate_taskmanager.spark.chain import loaded, named, require_unreserved
from lockgate_taskmanager.spark.dead_letters import letters, record_text, spares
from lockgate_taskmanager.spark.declared import declared_frame
from lockgate_taskmanager.spark.functions import kept
from lockgate_taskmanager.spark.functions import rows as function_rows
from lockgate_taskmanager.spark.keyed import careful, handles, ipc_batches, runner
from lockgate_taskmanager.spark.keyed.ipc_batches import batches_of
from lockgate_taskmanager.spark.keyed.ipc_plan import IpcPlan
from lockgate_taskmanager.spark.leaf import passable_schema
from lockgate_taskmanager.spark.workbench import Workbench
from lockgate_taskmanager.state.factory import StoreFactory
from lockgate_taskmanager.state.firing import Firing, Portion
from lockgate_taskmanager.state.format import key_payload, packed_payloads
from lockgate_taskmanager.state.late_clock import LateClock
from lockgate_taskmanager.state.layout import HASH
from lockgate_taskmanager.state.processing_clock import ProcessingClock
from lockgate_taskmanager.state.rows.row_store import PROCESS, Keys, RowSpec, RowStore, adopted, distinct, rows_of
from lockgate_taskmanager.state.store import FrozenStore, Merged
from lockgate_taskmanager.task.program import DataError, SnapshotOrder, StateUnreadable, UserCodeFailed

Array = Any  # numpy.ndarray
OWNER = PROCESS
_STATES = b"lockgate.states"  # in the metadata of the stored schema of records
_SHAPES = {
    StateShape.VALUE_STATE: runner.VALUE,
    StateShape.LIST_STATE: runner.LIST,
    StateShape.MAP_STATE: runner.MAP,
}

# Spark's Python workers need no installation of Lockgate
for _module in (runner, careful, handles, key_payload, packed_payloads, kept, function_rows, outages, raised):
    cloudpickle.register_pickle_by_value(_module)  # type: ignore[no-untyped-call]


class ProcessPlan:
    """The Spark job of a function over records of one schema."""

    def __init__(self, operator: Operator, bench: Workbench) -> None:
        """Raises UserError when the function cannot be loaded, or a type is invalid."""
        assert isinstance(operator.kind, KeyedProcess)
        self._operator, self._kind, self._bench, self._where = operator, operator.kind, bench, named(operator)
        loaded(operator.kind.function, self._where, "its function", ("process", "on_timer"))
        self.schema = _declared(bench, operator.kind.schema, f"{self._where}: its schema")
        require_unreserved(self.schema.names, f"{self._where}: its schema")
        self.states = tuple(self._state(state) for state in operator.kind.states)
        self._plan: IpcPlan | None = None
        self._records = pa.schema([])
        self._by_element = False

    def compile(self, records: pa.Schema, *, by_element: bool) -> None:
        """For records with these columns. by_element: the store keeps elements apart. Raises UserError."""
        self._records, self._by_element = records, by_element
        self._plan = self._planned("process", runner.calling)

    def _planned(self, name: str, calling: Callable[..., ipc_batches.Call], *more: pa.Schema) -> IpcPlan:
        """more: schemas of other batches that it makes."""
        kind, records = self._kind, self._records
        spelled = {name.casefold(): name for name in records.names}
        keys = tuple(spelled[key.casefold()] for key in kind.keys)
        call = calling(
            kind.function, self.states, keys, tuple(records.names), self.schema, kind.without_timers, self._by_element
        )
        visits = pa.schema([*map(records.field, keys), *runner.VISITS])
        made = (self.schema, runner.ROWS, runner.ELEMENTS, *more)
        return IpcPlan(self._bench, name, call, (visits, records), made, self._where)

    def warm_up(self) -> None:
        """Runs the job over no records."""
        assert self._plan is not None, "compile comes first"
        self._plan.warm_up()

    def run(self, visits: Visits, records: pa.Table) -> Made:
        """Calls the function. records: key after key, in the order of `visits`; none where only timers are due."""
        assert self._plan is not None, "compile comes first"
        try:
            out, rows, elements = self._plan.run(visits.batches(records))
            return Made(out, rows, elements)
        except (DataError, UserCodeFailed) as error:
            if not (records.num_rows and spares(self._operator) and may_be_a_record(error)):
                raise
        plan = self._planned("process-careful", partial(runner.calling, kind=careful.CarefulRunner), careful.FAILED)
        out, rows, elements, failed = plan.run(visits.batches(records))
        return Made(out, rows, elements, self._letters(records, failed) if failed.num_rows else None)

    def _letters(self, records: pa.Table, failed: pa.Table) -> pa.Table:
        poisoned = records.take(failed.column(careful.NUMBER))
        texts = [record_text(poisoned.slice(index, 1)) for index in range(poisoned.num_rows)]
        return letters(self._operator, texts, failed.column(careful.ERROR).to_pylist())

    def _state(self, declared_state: DeclaredState) -> runner.Declared:
        where = f"{self._where}: the type of state '{declared_state.name}'"
        kind = _declared(self._bench, f"value {declared_state.type}", where).field(0).type
        is_map = declared_state.shape is StateShape.MAP_STATE
        keys = _declared(self._bench, f"value {declared_state.key_type}", f"{where} (of its keys)") if is_map else None
        return runner.Declared(
            declared_state.name,
            _SHAPES[declared_state.shape],
            kind,
            None if keys is None else keys.field(0).type,
            declared_state.ttl_ms,
        )


@dataclass(frozen=True, slots=True)
class Visits:
    """The keys that the function is called for, with what it is given of each.

    counts: of its records; watermarks: event time for each, or for all.
    """

    keys: Keys
    payloads: pa.Array
    counts: Array
    watermarks: int | Array
    now_ms: int

    def batches(self, records: pa.Table) -> Iterator[pa.RecordBatch]:
        """As `runner` takes them."""
        keys, every = self.keys.columns, len(self.keys)
        times = np.broadcast_to(self.watermarks, every), np.full(every, self.now_ms)
        columns = [*keys.columns, self.payloads, *map(pa.array, (self.counts, *times))]
        first = 0
        for visits in batches_of(pa.table(columns, [*keys.schema.names, *runner.VISITS.names])):
            yield visits
            count = pc.sum(visits.column(runner.COUNT)).as_py()
            yield from batches_of(records.slice(first, count))
            first += count


class Made(NamedTuple):
    """What came of calls: the function's output, its state as `runner` has it, and records that it failed on."""

    out: pa.Table
    rows: pa.Table
    elements: pa.Table
    failed: pa.Table | None = None


class ProcessStore:
    """The state of a process function. merge: calls the function for records; advance, tick: for timers."""

    def __init__(self, spec: RowSpec, rows: RowStore, plan: ProcessPlan) -> None:
        """rows: with the schema of the records."""
        self.schema = plan.schema
        self._spec, self._rows, self._plan = spec, rows, plan
        self._time, self._late_clock = ProcessingClock(), LateClock(spec.operator_id)
        self._firing = Firing()
        self._compile(rows.record_schema)

    @property
    def partial_schema(self) -> pa.Schema:
        """Of records: nothing is aggregated before the exchange."""
        return self._rows.record_schema

    def set_input_schema(self, schema: pa.Schema) -> None:
        before = self._rows.record_schema
        self._rows.record_schema = adopted(self._spec, before, schema)
        if not _without_hash(before).equals(_without_hash(schema)):
            self._compile(schema)

    def merge(self, partial: pa.Table) -> Merged:
        if not partial.num_rows:
            return Merged(0, self.schema.empty_table())
        keys, numbers = distinct(partial, self._spec.keys)
        order = np.argsort(numbers, kind="stable")
        records = partial.drop_columns([HASH]).take(pa.array(order))
        payloads = self._rows.find(keys, self._time.now_ms)
        made = self._visit(keys, payloads, np.bincount(numbers, minlength=len(keys)), records)
        return Merged(partial.num_rows, made.out, failed=made.failed)

    def advance(self, watermark_ms: int) -> pa.Table:
        self._rows.clock.advance(watermark_ms)
        return self._firing.begin(self._fire(), self.schema)

    def go_on(self) -> pa.Table:
        return self._firing.go_on()

    @property
    def has_more(self) -> bool:
        return self._firing.has_more

    @property
    def is_settled(self) -> bool:
        """A key that was not visited keeps its timers, and is visited in the next portion."""
        return self._firing.is_settled

    def tick(self, unix_ms: int) -> pa.Table | None:
        now_ms = self._time.tick(unix_ms)
        self._late_clock.note(self._time.ahead_ms)
        if self._rows.next_due(self._rows.clock.now) > now_ms:
            return None
        fired = self._firing.begin(self._fire(expires=True), self.schema)
        return fired if fired.num_rows or self._firing.has_more else None

    def wakes_at(self) -> int:
        return self._time.unix_of(self._rows.next_due(self._rows.clock.now))

    def warm_up(self) -> None:
        self._plan.warm_up()

    def snapshot(self, order: SnapshotOrder) -> FrozenStore:
        return self._rows.snapshot(order)

    def close(self) -> None:
        self._rows.close()

    def _compile(self, schema: pa.Schema) -> None:
        self._plan.compile(_without_hash(schema), by_element=self._rows.elements is not None)

    def _fire(self, *, expires: bool = False) -> Iterator[Portion]:
        """Visits the keys whose timers are due. expires: rows that have expired are removed at the end."""
        due = self._rows.due(self._rows.clock.now, self._time.now_ms)
        nothing = _without_hash(self._rows.record_schema).empty_table()
        following = next(due, None)
        while following is not None:
            keys, payloads = following
            made = self._visit(keys, payloads, np.zeros(len(keys), np.int64), nothing)
            following = next(due, None)
            if following is None and expires:
                self._rows.expire(self._time.now_ms)
            yield Portion(made.out, is_settled=True, is_last=following is None)
        if expires:
            self._rows.expire(self._time.now_ms)

    def _visit(self, keys: Keys, payloads: pa.Array, counts: Array, records: pa.Table) -> Made:
        """Calls the function, and stores changed payloads."""
        watermarks = self._rows.clock.reached.of(keys.hashes)
        made = self._plan.run(Visits(keys, payloads, counts, watermarks, self._time.now_ms), records)
        for rows in made.rows.to_batches():
            self._rows.put(_some(keys, rows), rows_of(rows))
        for parts in made.elements.to_batches():
            assert self._rows.elements is not None, "only such stores have a function write elements"
            self._rows.elements.put(_some(keys, parts), parts.column(runner.ELEMENT), parts.column(runner.PAYLOAD))
        return made


@dataclass(frozen=True, slots=True)
class ProcessStores:
    """The OperatorStores of a process function."""

    operator: Operator
    spec: RowSpec
    rows: StoreFactory
    bench: Workbench

    def fresh(self, schema: pa.Schema) -> ProcessStore:
        plan = ProcessPlan(self.operator, self.bench)
        annotated = schema.with_metadata({_STATES: json.dumps(_described(plan))})
        spec = self.spec.within(schema)
        return ProcessStore(spec, self.rows.fresh(spec, annotated), plan)

    def restored(self, states: Sequence[OperatorState], checkpoint_id: int) -> ProcessStore:
        plan = ProcessPlan(self.operator, self.bench)
        rows = self.rows.restored(self.spec, states, checkpoint_id)
        try:
            before = parse_json((rows.record_schema.metadata or {}).get(_STATES, b"{}"))
            now = _described(plan)
            self._compare(before, now)
            # state that is no longer declared still exists for keys that were not visited since
            rows.record_schema = rows.record_schema.with_metadata({_STATES: json.dumps(before | now)})
            return ProcessStore(self.spec.within(rows.record_schema), rows, plan)
        except BaseException:
            rows.close()
            raise

    def _compare(self, before: dict[str, str], now: dict[str, str]) -> None:
        for name, kind in now.items():
            if before.get(name, kind) != kind:
                raise StateUnreadable(
                    f"state '{name}' of {named(self.operator)} was stored as {before[name]}, and the job now declares"
                    f" {kind}; keep its type, or give the new state another name"
                )


def _described(plan: ProcessPlan) -> dict[str, str]:
    """State by name, in readable form."""
    return {
        state.name: f"{state.shape} of {f'{state.key_kind} to ' if state.key_kind is not None else ''}{state.kind}"
        for state in plan.states
    }


def _declared(bench: Workbench, ddl: str, owner: str) -> pa.Schema:
    return passable_schema(declared_frame(bench.session, ddl, owner), owner)


def _without_hash(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field for field in schema if field.name != HASH])


def _some(keys: Keys, rows: pa.RecordBatch) -> Keys:
    """The key of each row of output."""
    return keys.take(rows.column(runner.KEY).to_numpy(zero_copy_only=False))
