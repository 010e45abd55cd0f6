"""How a vertex's chain of operators is divided into a head and stages."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa
from lockgate_proto.messages import (
    EventTime,
    JoinSide,
    Operator,
    PythonTransform,
    RecordFunction,
    SinkTransaction,
    SplitState,
    Vertex,
)
from lockgate_proto.operators import is_keyed, is_source, is_transform, kind_of

from lockgate_taskmanager.spark.careful import CarefulStage, Check, Outcome, may_be_a_record
from lockgate_taskmanager.spark.chain import named, queries_of, query_of, transform
from lockgate_taskmanager.spark.dead_letters import spares
from lockgate_taskmanager.spark.errors import explained
from lockgate_taskmanager.spark.event_time import Declaration, Times
from lockgate_taskmanager.spark.functions.stage import FunctionStage
from lockgate_taskmanager.spark.jobs import to_arrow
from lockgate_taskmanager.spark.leaf import Content, DataFrame, LeafSpec
from lockgate_taskmanager.spark.malformed import is_malformed
from lockgate_taskmanager.spark.outputs import Outputs, Transform
from lockgate_taskmanager.spark.partials import PartialAggregate
from lockgate_taskmanager.spark.plan import Plan
from lockgate_taskmanager.spark.raised import RAISED
from lockgate_taskmanager.spark.reproducible import irreproducible, varying_behind, varying_literal
from lockgate_taskmanager.spark.sinks.transaction import Sink
from lockgate_taskmanager.spark.sources.catching_up import CatchingUp
from lockgate_taskmanager.spark.sources.reading import Source
from lockgate_taskmanager.spark.workbench import Workbench
from lockgate_taskmanager.task.program import DataError, Irreproducible, ProgramError, UserCodeFailed, UserError
from lockgate_taskmanager.task.split_watermarks import SplitWatermarks


class SparkStage:
    """Transforms that run as one Spark job; without any, it only turns the source's content into a table."""

    def __init__(self, name: str, operators: Sequence[Operator], bench: Workbench) -> None:
        """Raises UserError when a Python function cannot be loaded."""
        self.operators = tuple(operators)
        self._name, self._where = name, named(operators[-1]) if operators else "the source"
        self._bench = bench
        self._transforms = [transform(operator) for operator in operators]
        self._plan: Plan | None = None
        self._inputs: list[DataFrame] = []  # of each transform
        self._tail: Transform | None = None
        self._careful: CarefulStage | None = None  # set if an operator skips failing records
        self._last = Outcome()

    def compile(self, spec: LeafSpec, tail: Transform | None) -> pa.Schema:
        """Makes the plan; returns the schema of its result. tail: computed after the transforms. Raises UserError."""
        self._tail = tail
        if any(map(spares, self.operators)):
            self._careful = CarefulStage(self._name, self.operators, spec, tail, self._bench)
        steps = [*self._transforms, *([tail] if tail else [])]

        def build(frame: DataFrame) -> DataFrame:
            self._inputs.clear()
            for step in steps:
                self._inputs.append(frame)
                frame = step(frame)
            return frame

        declared = [step.times for step in self._transforms if isinstance(step, Declaration)]
        times = declared[-1] if declared else None
        self._plan = self._bench.plan(self._name, spec, build, self._where, times, queries_of(self.operators))
        if self._inputs:
            self._plan.inputs = self._inputs
        else:  # the plan was made by an earlier attempt
            self._inputs = self._plan.inputs
        return self._plan.schema

    def irreproducible(self) -> str:
        """Why other micro-batches of the same records may give other results, as a clause; "" for no known reason.

        Raises UserError, EngineError.
        """
        assert self._plan is not None, "compile comes first"
        return self._plan.irreproducible(self._judged)

    def _judged(self) -> str:
        assert self._plan is not None, "it is asked for its plan"
        results = (*self._inputs[1:], self._plan.frame)
        for operator, result in zip(self.operators, results, strict=False):
            if why := varying_literal(query_of(operator)) or irreproducible(result):
                return f"{named(operator)} in front of key_by {why}"
        return varying_behind(self._plan.frame) if self._tail else ""

    def warm_up(self) -> None:
        """Runs the job over no records."""
        assert self._plan is not None, "compile comes first"
        self._plan.warm_up()

    @property
    def times(self) -> Times:
        """The event times of the last batch, if the stage declares them."""
        return self._last.times

    @property
    def malformed(self) -> int:
        """Lines of the last batch that could not be parsed, dropped or kept."""
        return self._last.malformed

    def run(self, content: Content, check: Check) -> Outcome:
        """Runs the job. check: raises Canceled; called before each further job when records fail."""
        assert self._plan is not None, "compile comes first"
        self._last = Outcome()
        try:
            try:
                self._last.add(self._plan.run(content), self._plan)
            except (DataError, UserCodeFailed) as error:
                if self._careful is None or not may_be_a_record(error):
                    raise
                self._last = self._careful.run(self._plan, content, error, check)
        except DataError as error:
            if is_malformed(error) or error.operator_id:
                raise  # the source's error, not that of an operator after it
            raise self._blamed(error) from error
        except UserCodeFailed as error:
            text, names = str(error).removeprefix(f"{self._where}: "), map(named, self._suspects() or self.operators)
            raise UserCodeFailed(f"{', '.join(names)}: {text}", is_environmental=error.is_environmental) from error
        return self._last

    def _suspects(self) -> list[Operator]:
        """Those that run the author's Python."""
        return [operator for operator in self.operators if isinstance(operator.kind, PythonTransform)]

    def _blamed(self, error: DataError) -> DataError:
        """Adds the operator that caused it: that of Spark's message, or the one that fails alone."""
        found = [
            index for index, operator in enumerate(self.operators) if error.query and error.query in query_of(operator)
        ]
        if not found and isinstance(self._tail, PartialAggregate):
            blamed = self._tail.blamed(error)
            if blamed is not error:
                return blamed
        if not found:
            found = self._failing(error)
        if not found:
            return error.at(", ".join(map(named, self.operators)), "") if self.operators else error
        operator, columns = self.operators[found[0]], self._inputs[found[0]].columns
        words = set(re.findall(r"\w+", error.fragment))
        named_in_it = [name for name in columns if name in words]
        return error.at(named(operator), operator.id, named_in_it[0] if len(named_in_it) == 1 else "")

    def _failing(self, error: DataError) -> list[int]:
        """The place of the operator that fails on the current batch: the results of all are computed in turn."""
        suspects = self._suspects() if error.text.startswith(RAISED) else []
        if len(suspects) == 1:
            return [self.operators.index(suspects[0])]
        places = range(len(self.operators))
        for place, result in zip(places, self._inputs[1:], strict=False):
            try:
                with explained(self._where, on_records=True):
                    to_arrow(result)
            except DataError:
                return [place]
            except ProgramError:
                return []
        is_last = self._tail is None and self._careful is None  # the batch may be a part of it, without bad records
        return list(places[-1:]) if is_last else []


@dataclass(slots=True)
class SinkStage:
    """A sink. restored: pending transactions of a restored snapshot."""

    operator: Operator
    sink: Sink
    restored: tuple[SinkTransaction, ...] = ()


Stage = SparkStage | FunctionStage | SinkStage


def id_of(stage: Stage) -> str:
    """Of its operator; unknown for several operators in one Spark job."""
    if isinstance(stage, SinkStage):
        return stage.operator.id
    return stage.operators[0].id if len(stage.operators) == 1 else ""


@contextmanager
def blamed(operator: Operator | None) -> Iterator[None]:
    """Attributes errors of records in keyed state to its operator."""
    try:
        yield
    except DataError as error:
        if operator is None or error.operator_id:
            raise
        raise error.at(named(operator), operator.id) from error


@dataclass(slots=True)
class ChainLayout:
    """The parts of one subtask's chain.

    operators: all of them; head: the source operator, if the first is one; keyed: the operator with keyed state, if the
    first is one; join: the interval join, if the first is one, which is not `keyed`; sides: of a join, by the vertex
    that sends it; broadcast_senders: the vertices whose records become state of the first function; key_groups: of this
    subtask; release: returns the workbench; is_made_again: see lockgate_proto.parts; reopened: gives splits of another
    run's snapshot the ends that they have now.
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
    broadcast_senders: frozenset[str] = frozenset()
    is_made_again: bool = False
    reopened: Callable[[Sequence[SplitState]], Sequence[SplitState]] = tuple

    @property
    def first_id(self) -> str:
        """Of the operator that takes the input; "" without any."""
        return self.operators[0].id if self.operators else ""

    @property
    def declaring(self) -> Operator | None:
        """The operator that declares event time, if any."""
        return next((operator for operator in self.operators if isinstance(operator.kind, EventTime)), None)

    @property
    def event_time(self) -> EventTime | None:
        """The chain's event time declaration, if any."""
        return next((operator.kind for operator in self.operators if isinstance(operator.kind, EventTime)), None)

    def split_watermarks(self) -> SplitWatermarks | None:
        """The event time of its source's splits, if the chain declares one."""
        declared = self.event_time
        return None if declared is None else SplitWatermarks(declared.out_of_orderness_ms, declared.idle_after_ms)

    @property
    def is_behind(self) -> bool:
        """True while its source has not come yet to where its receivers are."""
        return isinstance(self.source, CatchingUp) and self.source.is_behind

    def irreproducible(self, *outputs: Outputs) -> str:
        """See SubtaskProgram; to be called when all is compiled. Raises Irreproducible, UserError, EngineError."""
        if not self.is_made_again:
            return ""
        stages = (stage for stage in self.stages if isinstance(stage, SparkStage))
        parts: tuple[SparkStage | Outputs, ...] = (*stages, *outputs)
        why = next((why for part in parts if (why := part.irreproducible())), "")
        if why and self.is_behind:
            raise Irreproducible(f"what others have had of this subtask cannot be made again: {why}")
        return why

    def times(self) -> Times:
        """The event times of the last batch."""
        found = [stage.times for stage in self.stages if isinstance(stage, SparkStage)]
        return next((times for times in found if times != Times()), Times())

    def malformed(self) -> int:
        """Lines of a source's last batch that could not be parsed, dropped or kept."""
        first = next(iter(self.stages), None)
        return first.malformed if isinstance(first, SparkStage) else 0

    @property
    def sinks(self) -> tuple[SinkStage, ...]:
        """The stages that are sinks, in order."""
        return tuple(stage for stage in self.stages if isinstance(stage, SinkStage))

    def cancel_sinks(self) -> None:
        """From any thread, see `Sink.cancel`."""
        for stage in self.sinks:
            stage.sink.cancel()

    def sink_stage(self, operator_id: str) -> SinkStage:
        """The stage of a sink operator. Raises UserError when there is none."""
        for stage in self.sinks:
            if stage.operator.id == operator_id:
                return stage
        raise UserError(f"the restored state has a sink '{operator_id}', which the job does not have")

    def function_stage(self, operator_id: str) -> FunctionStage:
        """The stage of a function over records. Raises UserError when there is none."""
        for stage in self.stages:
            if isinstance(stage, FunctionStage) and id_of(stage) == operator_id:
                return stage
        raise UserError(
            f"the restored state is that of the object of operator '{operator_id}', which is no function over records"
            " now"
        )


def check(vertex: Vertex) -> None:
    """Raises UserError when the chain has an unknown operator or one in the wrong place."""
    if not vertex.operators:
        raise UserError(f"vertex '{vertex.id}' has no operators")
    for index, operator in enumerate(vertex.operators):
        if kind_of(operator) is None:
            raise UserError(f"{named(operator)} is of a kind that this task manager does not support; update it")
        if index and (is_source(operator) or is_keyed(operator)):
            raise UserError(f"{named(operator)} must be the first operator of its vertex '{vertex.id}'")


def stages_of(
    operators: Sequence[Operator],
    bench: Workbench,
    make_sink: Callable[[Operator], Sink],
    make_function: Callable[[Operator], FunctionStage],
    needs_first_job: bool,
) -> tuple[Stage, ...]:
    """Divides the operators after the head. needs_first_job: a source's content has to be turned into a table."""
    stages: list[Stage] = []
    run: list[Operator] = []

    def flush(needs_job: bool) -> None:
        if run or needs_job:
            stages.append(SparkStage(f"stage-{len(stages)}", run, bench))
            run.clear()

    for operator in operators:
        if isinstance(operator.kind, RecordFunction):
            flush(needs_first_job and not stages)
            stages.append(make_function(operator))
        elif is_transform(operator):
            run.append(operator)
        else:
            flush(needs_first_job and not stages)
            stages.append(SinkStage(operator, make_sink(operator)))
    flush(needs_first_job and not stages)
    return tuple(stages)
