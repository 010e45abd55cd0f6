"""A function of windows: their records in keyed state, one Spark job for the calls of each portion that is due.

records --> held until their windows are over --the records of key and window--> Spark: the function --> its output
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from lockgate_proto.messages import CountWindow, Operator, OperatorState, WindowProcess
from pyspark import cloudpickle

from lockgate_taskmanager.spark.chain import loaded, named, require_unreserved
from lockgate_taskmanager.spark.declared import declared_frame
from lockgate_taskmanager.spark.keyed import window_runner
from lockgate_taskmanager.spark.keyed.ipc_batches import batches_of
from lockgate_taskmanager.spark.keyed.ipc_plan import IpcPlan
from lockgate_taskmanager.spark.keyed.large_window import large_window_named
from lockgate_taskmanager.spark.leaf import passable_schema
from lockgate_taskmanager.spark.workbench import Workbench
from lockgate_taskmanager.state.contents.contents_spec import ContentsSpec
from lockgate_taskmanager.state.contents.window_contents import Calls, WindowContents
from lockgate_taskmanager.state.factory import StoreFactory
from lockgate_taskmanager.state.firing import FiringInTime, Portion
from lockgate_taskmanager.state.late_clock import LateClock
from lockgate_taskmanager.state.layout import EVENT_TIME
from lockgate_taskmanager.state.store import FrozenStore, KeyedStore, Merged
from lockgate_taskmanager.state.windows.processing_windows import ProcessingWindows
from lockgate_taskmanager.task.program import SnapshotOrder

# Spark's Python workers need no installation of Lockgate; `process` registers the modules that both use
cloudpickle.register_pickle_by_value(window_runner)  # type: ignore[no-untyped-call]


class WindowPlan:
    """The Spark job of a function of windows, over records of one schema. schema: of its output."""

    def __init__(self, operator: Operator, records: pa.Schema, bench: Workbench) -> None:
        """Raises UserError when the function cannot be loaded, or its schema is invalid."""
        kind = operator.kind
        assert isinstance(kind, WindowProcess | CountWindow)
        window = window_runner.Numbers if isinstance(kind, CountWindow) else window_runner.Bounds
        where = named(operator)
        loaded(kind.function, where, "its function", ("__call__",))
        owner = f"{where}: its schema"
        self.schema = passable_schema(declared_frame(bench.session, kind.schema, owner), owner)
        require_unreserved(self.schema.names, owner)
        self._records = records
        named_so = {name.casefold(): name for name in records.names}
        keys = tuple(named_so[key.casefold()] for key in kind.keys)
        self._keys, self._where, self._window = keys, where, window
        call = window_runner.calling(kind.function, keys, tuple(records.names), self.schema, window)
        given = pa.schema([*records, *window_runner.INPUT])
        self._plan = IpcPlan(bench, "windows", call, [given], [self.schema], where)

    def run(self, calls: Sequence[Calls]) -> pa.Table:
        """Calls the function. calls: of one portion, one or more."""
        tables, first = [], 0
        for some in calls:
            columns = [pa.array(some.numbers + first), pa.array(some.starts), pa.array(some.ends)]
            names = [*self._records.names, *window_runner.INPUT.names]
            tables.append(pa.Table.from_arrays([*some.rows.columns, *columns], names))
            first += int(some.numbers[-1]) + 1
        with large_window_named(calls, self._keys, self._where, self._window):
            (made,) = self._plan.run(batch for table in tables for batch in batches_of(table))
        return made

    def warm_up(self) -> None:
        """Runs the job over no records."""
        self._plan.warm_up()


class WindowStore(FiringInTime):
    """The state of a function of windows: merge holds records, advance calls the function with those of windows that
    are over.
    """

    def __init__(self, contents: WindowContents, plan: WindowPlan) -> None:
        self._contents, self._plan = contents, plan
        self.clock, self.schema = contents.clock, plan.schema

    @property
    def partial_schema(self) -> pa.Schema:
        """Of records: nothing is aggregated before the exchange."""
        return self._contents.partial_schema

    @property
    def late_schema(self) -> pa.Schema:
        """Of late records, which are passed on as they are."""
        return self._contents.schema

    def merge(self, partial: pa.Table) -> Merged:
        accepted = self._contents.merge(partial)
        late = accepted.late
        return Merged(accepted.records, self.schema.empty_table(), late if late.num_rows else None, late.num_rows)

    def next_due_ms(self) -> int:
        """No window ends before this; NEVER when there is none."""
        return self._contents.next_due_ms()

    def warm_up(self) -> None:
        self._plan.warm_up()

    def snapshot(self, order: SnapshotOrder) -> FrozenStore:
        return self._contents.snapshot(order)

    def close(self) -> None:
        self._contents.close()

    def _fires(self, now_ms: int) -> Iterator[Portion]:
        for portion in self._contents.due(now_ms):
            fired = self._plan.run(portion.calls) if portion.calls else self.schema.empty_table()
            yield Portion(fired, portion.is_settled, portion.is_last)


@dataclass(frozen=True, slots=True)
class WindowStores:
    """The OperatorStores of a function of windows."""

    operator: Operator
    spec: ContentsSpec
    factory: StoreFactory
    bench: Workbench

    def fresh(self, schema: pa.Schema) -> KeyedStore:
        spec = self.spec.within(schema)
        if spec.window.processing_time:
            schema = schema.append(pa.field(EVENT_TIME, pa.int64()))
        return self._store(WindowContents(spec, self.factory.fresh(spec, schema), schema))

    def restored(self, states: Sequence[OperatorState], checkpoint_id: int) -> KeyedStore:
        held = self.factory.restored(self.spec, states, checkpoint_id)
        schema = held.restored_from[0].partial_schema
        return self._store(WindowContents(self.spec.within(schema), held, schema))

    def _store(self, contents: WindowContents) -> KeyedStore:
        try:
            store = WindowStore(contents, WindowPlan(self.operator, contents.schema, self.bench))
        except BaseException:
            contents.close()
            raise
        window = self.spec.window
        if not window.processing_time:
            return store
        return ProcessingWindows(window, (EVENT_TIME,), store, LateClock(self.spec.operator_id))
