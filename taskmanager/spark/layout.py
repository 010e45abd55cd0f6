"""How a vertex's chain of operators is cut into a head and stages."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from lockgate_proto.messages import (
    ConsoleSink,
    Deduplicate,
    DeltaSink,
    EventTime,
    FileSink,
    FileSource,
    ForeachBatchSink,
    GeneratorSource,
    IntervalJoin,
    JoinSide,
    KafkaSink,
    KafkaSource,
    KeyedAggregate,
    KeyedProcess,
    Operator,
    PythonSink,
    PythonSource,
    PythonTransform,
    SinkTransaction,
    SocketSource,
    SqlSink,
    SqlTransform,
    Vertex,
)

from taskmanager.spark.chain import named, transform
from taskmanager.spark.event_time import Declaration
from taskmanager.spark.leaf import Content, DataFrame, LeafSpec
from taskmanager.spark.malformed import is_malformed
from taskmanager.spark.outputs import Transform
from taskmanager.spark.partials import PartialAggregate
from taskmanager.spark.plan import Plan
from taskmanager.spark.sinks.transaction import Sink
from taskmanager.spark.sources.reading import Source
from taskmanager.spark.workbench import Workbench
from taskmanager.task.program import DataError, UserError

_SOURCES = (FileSource, GeneratorSource, PythonSource, SocketSource, KafkaSource)
_KEYED = (KeyedAggregate, KeyedProcess, Deduplicate, IntervalJoin)
_TRANSFORMS = (SqlTransform, PythonTransform, EventTime)
_SINKS = (FileSink, SqlSink, ConsoleSink, ForeachBatchSink, PythonSink, KafkaSink, DeltaSink)


class SparkStage:
    """Transforms that run as one Spark job; without any, it only brings the source's content into a table."""

    def __init__(self, name: str, operators: Sequence[Operator], bench: Workbench) -> None:
        """Raises UserError when a Python function cannot be loaded."""
        self.operators = tuple(operators)
        self._name = name
        self._bench = bench
        self._transforms = [transform(operator) for operator in operators]
        self._plan: Plan | None = None
        self._inputs: list[DataFrame] = []  # of each transform
        self._tail: Transform | None = None

    def compile(self, spec: LeafSpec, tail: Transform | None) -> pa.Schema:
        """Makes the plan; returns the schema of its result. tail: computed behind the transforms. Raises UserError."""
        self._tail = tail
        steps = [*self._transforms, *([tail] if tail else [])]

        def build(frame: DataFrame) -> DataFrame:
            self._inputs.clear()
            for step in steps:
                self._inputs.append(frame)
                frame = step(frame)
            return frame

        where = named(self.operators[-1]) if self.operators else "the source"
        declared = [step.highest for step in self._transforms if isinstance(step, Declaration)]
        self._plan = self._bench.plan(self._name, spec, build, where, declared[-1] if declared else None)
        if self._inputs:
            self._plan.inputs = self._inputs
        else:  # the plan is that of an attempt before
            self._inputs = self._plan.inputs
        return self._plan.schema

    def rehearse(self) -> None:
        """Runs the job over nothing."""
        assert self._plan is not None, "compile comes first"
        self._plan.rehearse()

    @property
    def max_event_time_ms(self) -> int | None:
        """The highest event time of the last batch, where the stage declares it."""
        return self._plan.max_event_time_ms if self._plan is not None else None

    @property
    def malformed(self) -> int:
        """Lines of the last batch that were no records of a source's schema, dropped or kept."""
        return self._plan.malformed if self._plan is not None else 0

    def run(self, content: Content) -> pa.Table:
        """Runs the job."""
        assert self._plan is not None, "compile comes first"
        try:
            return self._plan.run(content)
        except DataError as error:
            if is_malformed(error):
                raise  # the source's, not that of an operator behind it
            raise self._blamed(error) from error

    def _blamed(self, error: DataError) -> DataError:
        """With the operator that it came of, where Spark's words tell which of those in its job it was."""
        found = [index for index, one in enumerate(self.operators) if error.query and error.query in _query_of(one)]
        if not found and isinstance(self._tail, PartialAggregate):
            blamed = self._tail.blamed(error)
            if blamed is not error:
                return blamed
        if not found and len(self.operators) == 1:
            found = [0]
        if not found:
            return error
        operator, columns = self.operators[found[0]], self._inputs[found[0]].columns
        words = set(re.findall(r"\w+", error.fragment))
        named_in_it = [name for name in columns if name in words]
        return error.at(named(operator), operator.id, named_in_it[0] if len(named_in_it) == 1 else "")


@dataclass(slots=True)
class SinkStage:
    """A sink. restored: transactions that a restored snapshot had pending."""

    operator: Operator
    sink: Sink
    restored: tuple[SinkTransaction, ...] = ()


Stage = SparkStage | SinkStage


def id_of(stage: Stage) -> str:
    """Of its operator; of several in one Spark job nobody knows which it is."""
    if isinstance(stage, SinkStage):
        return stage.operator.id
    return stage.operators[0].id if len(stage.operators) == 1 else ""


def _query_of(operator: Operator) -> str:
    """Its SQL text; "" where it has none."""
    kind = operator.kind
    if isinstance(kind, SqlTransform):
        return kind.query
    return kind.expression if isinstance(kind, EventTime) else ""


@dataclass(slots=True)
class ChainLayout:
    """The parts of one subtask's chain.

    operators: all of them; head: the source operator, if the first is one; keyed: the operator with keyed state, if the
    first is one; join: the interval join, if the first is one, which is not `keyed`; sides: of a join, by the vertex
    that sends it; key_groups: of this subtask; release: gives the workbench back.
    """

    operators: tuple[Operator, ...]
    head: Operator | None
    source: Source | None
    keyed: Operator | None
    stages: tuple[Stage, ...]
    key_groups: range
    max_parallelism: int
    release: Callable[[], None] = field(default=lambda: None)
    join: Operator | None = None
    sides: Mapping[str, JoinSide] = field(default_factory=dict)

    @property
    def event_time(self) -> EventTime | None:
        """How the chain declares event time, None where it does not."""
        return next((one.kind for one in self.operators if isinstance(one.kind, EventTime)), None)

    def max_event_time_ms(self) -> int | None:
        """The highest event time of the last batch."""
        found = [stage.max_event_time_ms for stage in self.stages if isinstance(stage, SparkStage)]
        return next((one for one in found if one is not None), None)

    def malformed(self) -> int:
        """Lines of a source's last batch that were no records, dropped or kept."""
        first = next(iter(self.stages), None)
        return first.malformed if isinstance(first, SparkStage) else 0

    def sink_stage(self, operator_id: str) -> SinkStage:
        """The stage of a sink operator. Raises UserError when there is none."""
        for stage in self.stages:
            if isinstance(stage, SinkStage) and stage.operator.id == operator_id:
                return stage
        raise UserError(f"the restored state has a sink '{operator_id}', which the job does not have")


def check(vertex: Vertex) -> None:
    """Raises UserError when the chain has an operator that is unknown here or in the wrong place."""
    if not vertex.operators:
        raise UserError(f"vertex '{vertex.id}' has no operators")
    for index, operator in enumerate(vertex.operators):
        if isinstance(operator.kind, (*_SOURCES, *_KEYED)):
            if index:
                raise UserError(f"{named(operator)} must be the first operator of its vertex '{vertex.id}'")
        elif not isinstance(operator.kind, _TRANSFORMS + _SINKS):
            raise UserError(f"{named(operator)} is of a kind that this task manager does not know; update it")


def is_keyed(operator: Operator) -> bool:
    """True for operators that keep state by key, and so come first in their vertex."""
    return isinstance(operator.kind, _KEYED)


def is_source(operator: Operator) -> bool:
    """True for operators that bring records into the job."""
    return isinstance(operator.kind, _SOURCES)


def stages_of(
    operators: Sequence[Operator],
    bench: Workbench,
    make_sink: Callable[[Operator], Sink],
    needs_first_job: bool,
) -> tuple[Stage, ...]:
    """Cuts the operators behind the head. needs_first_job: a source's content has to be brought into a table."""
    stages: list[Stage] = []
    run: list[Operator] = []

    def flush(needs_job: bool) -> None:
        if run or needs_job:
            stages.append(SparkStage(f"stage-{len(stages)}", run, bench))
            run.clear()

    for operator in operators:
        if isinstance(operator.kind, _TRANSFORMS):
            run.append(operator)
        else:
            flush(needs_first_job and not stages)
            stages.append(SinkStage(operator, make_sink(operator)))
    flush(needs_first_job and not stages)
    return tuple(stages)
