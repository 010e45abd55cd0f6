"""Count windows on Spark: their aggregates in state alone, their function in a Spark job for the windows of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from lockgate_proto.messages import CountWindow, Operator, OperatorState

from lockgate_taskmanager.spark.keyed.window_process import WindowPlan
from lockgate_taskmanager.spark.workbench import Workbench
from lockgate_taskmanager.state.counts.count_spec import CountSpec, with_element, without_element
from lockgate_taskmanager.state.counts.count_state import CountState
from lockgate_taskmanager.state.counts.elements import Folded, Held
from lockgate_taskmanager.state.factory import StoreFactory
from lockgate_taskmanager.state.join.waiting import columns_of
from lockgate_taskmanager.state.rows.row_store import RowStore


class CalledStore(CountState):
    """Count windows with a function. plan: calls it."""

    def __init__(self, spec: CountSpec, rows: RowStore, plan: WindowPlan) -> None:
        self._plan = plan
        incoming = without_element(rows.record_schema)
        super().__init__(spec, rows, Held(spec.window, incoming, plan.run, plan.schema))

    def warm_up(self) -> None:
        """Runs the job over no records."""
        self._plan.warm_up()


@dataclass(frozen=True, slots=True)
class CountStores:
    """The OperatorStores of count windows."""

    operator: Operator
    spec: CountSpec
    factory: StoreFactory
    bench: Workbench

    @classmethod
    def of(
        cls, operator: Operator, max_parallelism: int, key_groups: range, factory: StoreFactory, bench: Workbench
    ) -> CountStores:
        """Of an operator in one subtask. Elements are never changed but by records, so differences do not pay."""
        assert isinstance(operator.kind, CountWindow)
        spec = CountSpec.of(operator.id, operator.kind, max_parallelism, key_groups)
        return cls(operator, spec, factory.without_diffs(), bench)

    def fresh(self, schema: pa.Schema) -> CountState:
        return self._store(self.factory.fresh(self.spec, with_element(schema)))

    def restored(self, states: Sequence[OperatorState], checkpoint_id: int) -> CountState:
        return self._store(self.factory.restored(self.spec, states, checkpoint_id))

    def _store(self, rows: RowStore) -> CountState:
        try:
            spec = self.spec.within(rows.record_schema)
            incoming = without_element(rows.record_schema)
            if self.spec.window.aggregates:
                return CountState(spec, rows, Folded(spec.window, spec.key_names, incoming))
            return CalledStore(spec, rows, WindowPlan(self.operator, columns_of(incoming), self.bench))
        except BaseException:
            rows.close()
            raise
