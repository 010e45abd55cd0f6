"""Plans: a DataFrame over a leaf, made once and executed for every micro-batch where that is correct.

Executing a DataFrame again runs the same physical plan. That is correct only when the whole plan reads its input again:
results of exchanges, broadcasts, subqueries and caches stay inside a plan, and the current time, random seeds and the
like are fixed when it is made. So only plans that consist of operators known to keep nothing are executed again; any
other plan is made again for every batch, which is slower but always correct.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from lockgate_taskmanager.spark.errors import explained
from lockgate_taskmanager.spark.event_time import Times
from lockgate_taskmanager.spark.jobs import counted
from lockgate_taskmanager.spark.leaf import Content, DataFrame, Leaf, passable_schema
from lockgate_taskmanager.spark.malformed import describe
from lockgate_taskmanager.spark.repeated_job import LARGE_TYPES, RepeatedJob
from lockgate_taskmanager.spark.reproducible import BATCH, varying, varying_literal
from lockgate_taskmanager.spark.session import is_connect
from lockgate_taskmanager.spark.valid_text import require_valid
from lockgate_taskmanager.task.program import DataError, UserError

LOG = logging.getLogger(__name__)

Build = Callable[[DataFrame], DataFrame]
TimesOf = Callable[[DataFrame], Times]  # of the last batch executed
_KEEPS_NOTHING = frozenset(
    {
        "ArrowEvalPython",
        "BatchEvalPython",
        "Coalesce",
        "CollectMetrics",  # reset by every execution
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
_OF_A_FILE = re.compile(r"\binput_file_(name|block_start|block_length)\(\)")


class Plan:
    """One Spark job of a subtask: content in, Arrow table out. Used from one thread at a time."""

    def __init__(self, leaf: Leaf, build: Build, where: str, times: TimesOf | None = None, sql: str = "") -> None:
        """Makes the plan. Raises UserError (with `where`, the operator, in front) when the query is wrong.

        times: the event times of a batch, if the query declares event time. sql: the text of its queries.
        """
        self.times = Times()  # of the last batch
        self.inputs: list[DataFrame] = []  # of each transform in it, set by the caller
        self.malformed = 0  # lines of the last batch that could not be parsed, dropped or kept
        self._times = times
        self._leaf = leaf
        self._build = build
        self._where = where
        leaf.prepare()
        bottom = leaf.frame().alias(BATCH)
        self.frame = build(bottom)
        self._irreproducible: str | None = None  # the first answer
        with explained(where):
            if not is_connect(self.frame):
                _require_fresh(self.frame, bottom, where)
            self.schema = passable_schema(self.frame, where)
            self.repeatable = leaf.repeatable and not varying_literal(sql) and keeps_nothing(self.frame)
        self._job: RepeatedJob | None = None  # once the first execution has made its RDD
        self._may_have_job = self.repeatable
        if not self.repeatable:
            LOG.info("%s: its plan keeps results or fixed values, so it is built again for every micro-batch", where)

    def warm_up(self) -> None:
        """Executes the job over no records, so that its code is generated and compiled."""
        self.run(self._leaf.nothing())

    def run(self, content: Content) -> pa.Table:
        """Executes the job. Raises DataError, UserCodeFailed, UserError, EngineError, OSError."""
        self._leaf.load(content)
        try:
            with explained(self._where, on_records=True):
                frame = self.frame if self.repeatable else self._build(self._leaf.frame())
                table = self._execute(frame)
                self.malformed = self._leaf.malformed(frame)
                if self._times is not None:
                    self.times = self._times(frame)
        except DataError as error:
            raise describe(error) from error.__cause__
        return require_valid(pa.Table.from_arrays(table.columns, schema=self.schema), self._where)

    def irreproducible(self, judged: Callable[[], str]) -> str:
        """Why it may give other results for the same records, as a clause; "" for no known reason.

        judged: finds out. A plan outlives an attempt, and is judged once, before its first batch: frames that are built
        for a batch do not have the alias. Raises UserError, EngineError.
        """
        if self._irreproducible is None:
            with explained(self._where):
                self._irreproducible = judged()
        return self._irreproducible

    def close(self) -> None:
        """Releases the leaf."""
        self._leaf.close()
        if self._job is not None:
            self._job.close()

    def _execute(self, frame: DataFrame) -> pa.Table:
        if self._job is not None:
            return counted(self._job.run)
        table = counted(frame.toArrow)
        if self._may_have_job:
            self._job = self._new_job(frame)
            self._may_have_job = self._job is not None
        return table

    def _new_job(self, frame: DataFrame) -> RepeatedJob | None:
        """For the next executions. None when there can be none: then they work as the first, whose result is good."""
        try:
            if frame.sparkSession.conf.get(LARGE_TYPES, "false") == "true":
                return None
            return RepeatedJob(frame, self.schema, self._leaf.result_path)
        except (OSError, Py4JError, PySparkException, TypeError) as error:  # TypeError: Spark has no such class
            LOG.warning("%s: micro-batches take a slower way: %s", self._where, str(error).partition("\n")[0])
            return None


def _require_fresh(frame: DataFrame, bottom: DataFrame, where: str) -> None:
    """Raises UserError for a plan that would apply facts about the first batch, or about our files, to every batch."""
    analyzed, theirs = (of._jdf.queryExecution().analyzed() for of in (frame, bottom))
    text = analyzed.toString()
    called = _OF_A_FILE.search(text)
    may_read = "_metadata" in text or " more fields" in text  # which spares most plans some calls of the JVM
    if called or (may_read and "_metadata" not in bottom.columns and _reads_metadata(analyzed, theirs)):
        what = "input_file_name() and similar functions return" if called else "the column _metadata describes"
        raise UserError(
            f"{where}: {what} an internal file that holds a batch, not the file that a record came from; keep the name"
            " in the records, or write a custom source"
        )
    cached = _leaves(frame._jdf.queryExecution().withCachedData())
    kept = [leaf.cacheBuilder().logicalPlan() for leaf in cached if leaf.nodeName().startswith("InMemoryRelation")]
    if any(own.sameResult(leaf) for plan in kept for leaf in _leaves(plan) for own in _leaves(theirs)):
        raise UserError(
            f"{where}: it caches records of its input, so that every batch would get those of the first one; leave the"
            " cache out, because a batch is read only once"
        )


def _leaves(plan: Any) -> list[Any]:
    leaves = plan.collectLeaves()
    return [leaves.apply(index) for index in range(leaves.size())]


def _reads_metadata(plan: Any, theirs: Any) -> bool:
    """Whether a plan reads what Spark knows of the files of `theirs`; other files may be looked up."""
    files = [leaf.relation() for leaf in _relations(theirs)]
    described = (leaf.relation() for leaf in _relations(plan) if leaf.output().last().name() == "_metadata")
    return any(relation.equals(file) for relation in described for file in files)


def _relations(plan: Any) -> list[Any]:
    """Leaves that read files or tables."""
    return [leaf for leaf in _leaves(plan) if leaf.getClass().getSimpleName() == "LogicalRelation"]


def keeps_nothing(frame: DataFrame) -> bool:
    """True when executing the (classic) DataFrame again reads and computes everything again."""
    return not varying(frame) and _node_keeps_nothing(frame._jdf.queryExecution().executedPlan())


def _node_keeps_nothing(node: Any) -> bool:
    name = node.nodeName()
    # WholeStageCodegen's name ends in a number
    known = name in _KEEPS_NOTHING or name.startswith("WholeStageCodegen") or name == "Scan OneRowRelation"
    if not known and not _READS_A_FILE.match(name):
        return False
    if not node.subqueries().isEmpty():
        return False
    children = node.children()
    return all(_node_keeps_nothing(children.apply(index)) for index in range(children.size()))
