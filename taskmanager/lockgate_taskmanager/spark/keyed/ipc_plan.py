"""A Spark job that calls one Python function with batches that Spark does not look at."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql.pandas.types import from_arrow_schema

from lockgate_taskmanager.spark.errors import explained
from lockgate_taskmanager.spark.keyed import ipc_batches, shipped
from lockgate_taskmanager.spark.leaf import DataFrame, Form, LeafSpec
from lockgate_taskmanager.spark.valid_text import require_valid
from lockgate_taskmanager.spark.workbench import Workbench

# Spark's Python workers need no installation of Lockgate
for _module in (ipc_batches, shipped):
    cloudpickle.register_pickle_by_value(_module)  # type: ignore[no-untyped-call]


class IpcPlan:
    """Used from one thread at a time."""

    def __init__(
        self,
        bench: Workbench,
        name: str,
        call: ipc_batches.Call,
        given: Sequence[pa.Schema],
        made: Sequence[pa.Schema],
        where: str,
    ) -> None:
        """name: of the plan in the workbench, another one for each call.

        given, made: schemas of the batches that the call takes, and of those that it makes; where: the operator, in
        front of messages.
        """
        self._given, self._made, self._where = given, made, where
        sealing = ipc_batches.sealing(call, given, made)
        function = shipped.shipped(cloudpickle.dumps(sealing))  # type: ignore[no-untyped-call]

        def build(frame: DataFrame) -> DataFrame:
            with explained(where, frame.columns):
                return frame.mapInArrow(function, from_arrow_schema(ipc_batches.SCHEMA))

        spec = LeafSpec(Form.TABLE, table=ipc_batches.SCHEMA)
        self._plan = bench.plan(name, spec, build, where, about=tuple(given))

    def run(self, batches: Iterable[pa.RecordBatch]) -> list[pa.Table]:
        """What the call has made of these batches, a table for each schema. Raises what Plan.run raises."""
        rows = pa.Table.from_batches(ipc_batches.sealed(batches, self._given), ipc_batches.SCHEMA)
        made: list[list[pa.RecordBatch]] = [[] for _ in self._made]
        for number, batch in ipc_batches.opened(self._plan.run(rows).to_batches(), self._made):
            made[number].append(batch)
        found = [pa.Table.from_batches(some, schema) for some, schema in zip(made, self._made, strict=True)]
        return [require_valid(table, self._where) for table in found]

    def warm_up(self) -> None:
        """Runs the job over no records."""
        self._plan.warm_up()
