"""A keyed process function: its rows in a row store, its calls in one Spark job for each micro-batch.

    records --the payloads of their keys--> Spark: the function --> what it puts out
                                                     |--> changed payloads --> row store

Only the rows of keys that occur, or whose timers are due, travel to Spark and back. Timers and expiry go by the times
that the store keeps beside each payload.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lockgate_proto.messages import DeclaredState, KeyedProcess, Operator, OperatorState, StateShape
from pyspark import cloudpickle
from pyspark.sql.pandas.types import from_arrow_schema

from taskmanager.spark.chain import loaded, named, require_unreserved
from taskmanager.spark.errors import explained
from taskmanager.spark.keyed import handles, runner
from taskmanager.spark.leaf import DataFrame, Form, LeafSpec, passable_schema
from taskmanager.spark.plan import Plan
from taskmanager.spark.workbench import Workbench
from taskmanager.state.firing import Firing, Portion
from taskmanager.state.layout import HASH
from taskmanager.state.row_store import Keys, Rows, RowSpec, RowStore, adopted, distinct
from taskmanager.state.row_stores import RowStores
from taskmanager.state.store import FrozenStore, Merged
from taskmanager.task.program import SnapshotOrder, StateUnreadable

Array = Any  # numpy.ndarray
OWNER = "process"
_STATES = b"lockgate.states"  # in the metadata of the stored schema of records
_SHAPES = {
    StateShape.VALUE_STATE: runner.VALUE,
    StateShape.LIST_STATE: runner.LIST,
    StateShape.MAP_STATE: runner.MAP,
}

for _module in (runner, handles):  # nothing of ours need be installed where Spark's Python workers are
    cloudpickle.register_pickle_by_value(_module)  # type: ignore[no-untyped-call]


class ProcessPlan:
    """The Spark job of a function over records of one schema."""

    def __init__(self, operator: Operator, bench: Workbench) -> None:
        """Raises UserError when the function cannot be loaded, or a type is wrong."""
        assert isinstance(operator.kind, KeyedProcess)
        self._kind, self._bench, self._where = operator.kind, bench, named(operator)
        loaded(operator.kind.function, self._where, "its function", ("process", "on_timer"))
        self.schema = _declared(bench, operator.kind.schema, f"{self._where}: its schema")
        require_unreserved(self.schema.names, f"{self._where}: its schema")
        self.states = tuple(self._state(one) for one in operator.kind.states)
        self._plan: Plan | None = None
        self._records = pa.schema([])

    def compile(self, records: pa.Schema) -> None:
        """For records with these columns. Raises UserError."""
        self._records = records
        kind, result = self._kind, pa.schema([*self.schema, *runner.OUTPUT])
        call = runner.calling(kind.function, self.states, kind.keys, tuple(records.names), self.schema)

        def build(frame: DataFrame) -> DataFrame:
            with explained(self._where, frame.columns):
                return frame.mapInArrow(call, from_arrow_schema(result))

        spec = LeafSpec(Form.TABLE, table=pa.schema([*records, *runner.INPUT]))
        self._plan = self._bench.plan("process", spec, build, self._where)

    def rehearse(self) -> None:
        """Runs the job over nothing."""
        assert self._plan is not None, "compile comes first"
        self._plan.rehearse()

    def run(self, records: pa.Table, numbers: Array, payloads: pa.Array, about: About) -> pa.Table:
        """Calls the function. numbers: of each record's key, ascending; payloads: by number."""
        assert self._plan is not None, "compile comes first"
        count = len(numbers)
        is_first = np.diff(numbers, prepend=-1) != 0
        columns = [
            pa.array(numbers, pa.int32()),
            payloads.take(pa.array(numbers, pa.int64(), mask=~is_first)),
            pa.array(np.full(count, about.is_record)),
            pa.array(np.broadcast_to(about.watermarks, len(payloads))[numbers], pa.int64()),
            pa.array(np.full(count, about.now_ms)),
        ]
        return self._plan.run(pa.table([*records.columns, *columns], [*records.schema.names, *runner.INPUT.names]))

    def timers_of(self, keys: Keys) -> pa.Table:
        """Rows that are no records, only keys."""
        given = dict(zip(keys.columns.schema.names, keys.columns.columns, strict=True))
        columns = [
            given[field.name] if field.name in given else pa.nulls(len(keys), field.type) for field in self._records
        ]
        return pa.Table.from_arrays(columns, schema=self._records)

    def _state(self, one: DeclaredState) -> runner.Declared:
        where = f"{self._where}: the type of state '{one.name}'"
        kind = _declared(self._bench, f"value {one.type}", where).field(0).type
        is_map = one.shape is StateShape.MAP_STATE
        keys = _declared(self._bench, f"value {one.key_type}", f"{where} (of its keys)") if is_map else None
        return runner.Declared(
            one.name, _SHAPES[one.shape], kind, None if keys is None else keys.field(0).type, one.ttl_ms
        )


@dataclass(frozen=True, slots=True)
class About:
    """What goes with the rows of a job. is_record: they are records, and no timers.

    watermarks: how far event time has come for each key by number, or for all.
    """

    is_record: bool
    watermarks: int | Array
    now_ms: int


class ProcessStore:
    """See KeepsTime. merge: calls the function for records; advance, tick: for timers."""

    def __init__(self, spec: RowSpec, rows: RowStore, plan: ProcessPlan) -> None:
        """rows: with the schema of the records."""
        self.schema = plan.schema
        self._spec, self._rows, self._plan = spec, rows, plan
        self._now_ms = 0
        self._firing = Firing()
        plan.compile(_without_hash(rows.record_schema))

    @property
    def partial_schema(self) -> pa.Schema:
        """See KeyedStore: here, of records."""
        return self._rows.record_schema

    def adopt(self, schema: pa.Schema) -> None:
        """See KeepsTime."""
        before = self._rows.record_schema
        self._rows.record_schema = adopted(self._spec, before, schema)
        if not _without_hash(before).equals(_without_hash(schema)):
            self._plan.compile(_without_hash(schema))

    def merge(self, partial: pa.Table) -> Merged:
        """See KeyedStore."""
        if not partial.num_rows:
            return Merged(0, self.schema.empty_table())
        keys, numbers = distinct(partial, self._spec.keys)
        order = np.argsort(numbers, kind="stable")
        records = partial.drop_columns([HASH]).take(pa.array(order))
        payloads = self._rows.find(keys, self._now_ms)
        return Merged(partial.num_rows, self._visit(records, numbers[order], keys, payloads, is_record=True))

    def advance(self, watermark_ms: int) -> pa.Table:
        """See KeepsTime."""
        self._rows.clock.advance(watermark_ms)
        return self._firing.begin(self._fire(), self.schema)

    def go_on(self) -> pa.Table:
        """See KeepsTime."""
        return self._firing.go_on()

    @property
    def has_more(self) -> bool:
        """See KeepsTime."""
        return self._firing.has_more

    @property
    def is_settled(self) -> bool:
        """See KeepsTime. A key that was not visited keeps its timers, and is visited when there is time again."""
        return self._firing.is_settled

    def tick(self, unix_ms: int) -> pa.Table | None:
        """See KeepsTime."""
        self._now_ms = max(self._now_ms, unix_ms)
        if self._rows.next_due(self._rows.clock.now) > self._now_ms:
            return None
        fired = self._firing.begin(self._fire(expires=True), self.schema)
        return fired if fired.num_rows or self._firing.has_more else None

    def wakes_at(self) -> int:
        """See KeepsTime."""
        return self._rows.next_due(self._rows.clock.now)

    def rehearse(self) -> None:
        """See KeepsTime."""
        self._plan.rehearse()

    def snapshot(self, order: SnapshotOrder) -> FrozenStore:
        """See KeyedStore."""
        return self._rows.snapshot(order)

    def close(self) -> None:
        """See KeyedStore."""
        self._rows.close()

    def _fire(self, *, expires: bool = False) -> Iterator[Portion]:
        """Visits the keys whose timers are due. expires: the rows that are over are forgotten at the end."""
        due = self._rows.due(self._rows.clock.now, self._now_ms)
        following = next(due, None)
        while following is not None:
            keys, payloads = following
            timers = self._plan.timers_of(keys)
            fired = self._visit(timers, np.arange(len(keys)), keys, payloads, is_record=False)
            following = next(due, None)
            if following is None and expires:
                self._rows.expire(self._now_ms)
            yield Portion(fired, is_settled=True, is_last=following is None)
        if expires:
            self._rows.expire(self._now_ms)

    def _visit(self, records: pa.Table, numbers: Array, keys: Keys, payloads: pa.Array, *, is_record: bool) -> pa.Table:
        """Calls the function, keeps what has changed, returns what it has put out."""
        about = About(is_record, self._rows.clock.reached.of(keys.hashes), self._now_ms)
        result = self._plan.run(records, numbers, payloads, about)
        is_state = pc.is_valid(result.column(runner.KEY))
        for batch in result.filter(is_state).select(runner.OUTPUT.names).combine_chunks().to_batches():
            places = batch.column(runner.KEY).to_numpy(zero_copy_only=False)
            times = (batch.column(name).to_numpy(zero_copy_only=False) for name in runner.OUTPUT.names[2:])
            self._rows.put(keys.take(places), Rows(batch.column(runner.PAYLOAD), *times))
        out = result.filter(pc.invert(is_state)).select(self.schema.names)
        return pa.Table.from_arrays(out.columns, schema=self.schema)


@dataclass(frozen=True, slots=True)
class ProcessStores:
    """See OperatorStores."""

    operator: Operator
    spec: RowSpec
    rows: RowStores
    bench: Workbench

    def fresh(self, schema: pa.Schema) -> ProcessStore:
        """See OperatorStores."""
        plan = ProcessPlan(self.operator, self.bench)
        told = schema.with_metadata({_STATES: json.dumps(_described(plan))})
        spec = self.spec.within(schema)
        return ProcessStore(spec, self.rows.fresh(spec, told), plan)

    def restored(self, states: Sequence[OperatorState], checkpoint_id: int) -> ProcessStore:
        """See OperatorStores."""
        plan = ProcessPlan(self.operator, self.bench)
        rows = self.rows.restored(self.spec, states, checkpoint_id)
        try:
            before = json.loads((rows.record_schema.metadata or {}).get(_STATES, b"{}"))
            now = _described(plan)
            self._compare(before, now)
            # a state that is declared no more is still there for keys that were not visited since
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
    """State by name, as people read it."""
    return {
        one.name: f"{one.shape} of {f'{one.key_kind} to ' if one.key_kind is not None else ''}{one.kind}"
        for one in plan.states
    }


def _declared(bench: Workbench, ddl: str, what: str) -> pa.Schema:
    with explained(f"{what} '{ddl}' is wrong"):
        return passable_schema(bench.session.createDataFrame([], ddl), what)


def _without_hash(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field for field in schema if field.name != HASH])
