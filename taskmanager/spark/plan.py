"""Plans: a DataFrame over a leaf, made once and executed for every micro-batch where that gives the right answer.

Executing a DataFrame again runs the same physical plan. That is right only when the whole plan reads its input again:
results of exchanges, broadcasts, subqueries and caches stay inside a plan, and the current time, random seeds and
the like are fixed when it is made. So only plans that consist of operators known to keep nothing are executed again;
any other is made anew for every batch, which is slower and always right.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from taskmanager.spark.errors import explained
from taskmanager.spark.leaf import Content, DataFrame, Leaf, passable_schema
from taskmanager.spark.malformed import told
from taskmanager.spark.valid_text import require_valid
from taskmanager.task.program import DataError

LOG = logging.getLogger(__name__)

Build = Callable[[DataFrame], DataFrame]
Highest = Callable[[DataFrame], int | None]  # of the batch for which a frame was executed, in milliseconds
_KEEPS_NOTHING = frozenset(
    {
        "ArrowEvalPython",
        "BatchEvalPython",
        "Coalesce",
        "CollectMetrics",  # which are reset by every execution
        "ColumnarToRow",
        "Expand",
        "Filter",
        "Generate",
        "HashAggregate",
        "InputAdapter",
        "LocalTableScan",
        "MapInArrow",
        "MapInPandas",
        "ObjectHashAggregate",
        "Project",
        "PythonMapInArrow",
        "Sort",
        "SortAggregate",
        "SortMergeJoin",
        "Union",
        "Window",
        "WindowGroupLimit",
    }
)
_READS_A_FILE = re.compile(r"Scan (text|csv|json|parquet)\b")
_FIXED_WHEN_PLANNED = re.compile(
    r"\b(current_timestamp|current_date|current_time|localtimestamp|now|unix_timestamp|rand|randn|random|randstr"
    r"|uniform|uuid|shuffle|current_timezone)\(",
    re.IGNORECASE,
)


class Plan:
    """One Spark job of a subtask: content in, Arrow table out. Used from one thread at a time."""

    def __init__(self, leaf: Leaf, build: Build, where: str, highest: Highest | None = None) -> None:
        """Makes the plan. Raises UserError (with `where`, the operator, in front) when the query is wrong.

        highest: of the event times of a batch, where the query declares event time.
        """
        self.max_event_time_ms: int | None = None  # of the last batch
        self.inputs: list[DataFrame] = []  # of each transform in it, noted by who builds it
        self.malformed = 0  # lines of the last batch that were no records, dropped or kept
        self._highest = highest
        self._leaf = leaf
        self._build = build
        self._where = where
        leaf.prepare()
        self._frame = build(leaf.frame())
        with explained(where):
            self.schema = passable_schema(self._frame, where)
            self.repeatable = leaf.repeatable and keeps_nothing(self._frame)
        if not self.repeatable:
            LOG.info("%s: its plan keeps results or fixed values, so it is made anew for every micro-batch", where)

    def rehearse(self) -> None:
        """Executes the job over nothing: its code is generated and compiled then."""
        self.run(self._leaf.nothing())

    def run(self, content: Content) -> pa.Table:
        """Executes the job. Raises DataError, UserCodeFailed, UserError, EngineError, OSError."""
        self._leaf.load(content)
        try:
            with explained(self._where, on_records=True):
                frame = self._frame if self.repeatable else self._build(self._leaf.frame())
                table: pa.Table = frame.toArrow()
                self.malformed = self._leaf.malformed(frame)
                if self._highest is not None:
                    self.max_event_time_ms = self._highest(frame)
        except DataError as error:
            raise told(error) from error.__cause__
        return require_valid(pa.Table.from_arrays(table.columns, schema=self.schema), self._where)

    def close(self) -> None:
        """Releases the leaf."""
        self._leaf.close()


def keeps_nothing(frame: DataFrame) -> bool:
    """True when executing the (classic) DataFrame again reads and computes everything again."""
    execution = frame._jdf.queryExecution()
    analyzed = execution.analyzed()
    if not analyzed.deterministic() or _FIXED_WHEN_PLANNED.search(analyzed.toString()):
        return False
    return _node_keeps_nothing(execution.executedPlan())


def _node_keeps_nothing(node: Any) -> bool:
    name = node.nodeName()
    # WholeStageCodegen's name carries a number behind it
    known = name in _KEEPS_NOTHING or name.startswith("WholeStageCodegen") or name == "Scan OneRowRelation"
    if not known and not _READS_A_FILE.match(name):
        return False
    if not node.subqueries().isEmpty():
        return False
    children = node.children()
    return all(_node_keeps_nothing(children.apply(index)) for index in range(children.size()))
