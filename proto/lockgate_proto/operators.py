"""What every kind of operator is: the facts that coordinator and task manager must agree on.

An operator that is added gets its entry here. The coordinator's `graph/validate_operator.py` checks its settings, the
task manager's `spark/operators.py` runs it on Spark. A test compares the three.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from lockgate_proto import messages as m

COMMITS_TOPIC = "lockgate-commits"
"""The topic that a KafkaSink without a `commits_topic` records its commits in."""


class Role(Enum):
    """What an operator does with records. Sources and keyed operators come first in their vertex, sinks last."""

    SOURCE = "source"
    TRANSFORM = "transform"
    KEYED = "keyed"
    SINK = "sink"


@dataclass(frozen=True, slots=True)
class OperatorKind:
    """What is true of every operator of a kind, whatever its settings.

    called: at the beginning of a sentence. can_skip: on_error may be SKIP or DEAD_LETTER. can_head_loop: puts out
    records in answer to records, and at no other time. commits: a sink that holds output back until a checkpoint is
    complete. is_exact: a sink that shows each record's effect once, as long as the state behind it is exact.
    """

    role: Role
    called: str = "Operator"
    can_skip: bool = False
    can_head_loop: bool = False
    commits: bool = False
    is_exact: bool = False


KINDS: Mapping[type, OperatorKind] = {
    m.FileSource: OperatorKind(Role.SOURCE),
    m.GeneratorSource: OperatorKind(Role.SOURCE),
    m.PythonSource: OperatorKind(Role.SOURCE),
    m.SocketSource: OperatorKind(Role.SOURCE),
    m.KafkaSource: OperatorKind(Role.SOURCE),
    m.SqlTransform: OperatorKind(Role.TRANSFORM, can_skip=True, can_head_loop=True),
    m.PythonTransform: OperatorKind(Role.TRANSFORM, can_skip=True, can_head_loop=True),
    m.RecordFunction: OperatorKind(Role.TRANSFORM, can_skip=True, can_head_loop=True),
    m.EventTime: OperatorKind(Role.TRANSFORM, can_skip=True),
    m.KeyedAggregate: OperatorKind(Role.KEYED, "Aggregate"),
    m.KeyedProcess: OperatorKind(Role.KEYED, "Process function", can_skip=True),
    m.Deduplicate: OperatorKind(Role.KEYED, "Deduplication"),
    m.IntervalJoin: OperatorKind(Role.KEYED, "Join"),
    m.WindowProcess: OperatorKind(Role.KEYED, "Function of windows"),
    m.CountWindow: OperatorKind(Role.KEYED, "Count window"),
    m.FileSink: OperatorKind(Role.SINK, commits=True, is_exact=True),
    m.SqlSink: OperatorKind(Role.SINK, commits=True, is_exact=True),
    m.PythonSink: OperatorKind(Role.SINK, commits=True, is_exact=True),
    m.KafkaSink: OperatorKind(Role.SINK, commits=True, is_exact=True),
    m.DeltaSink: OperatorKind(Role.SINK, commits=True, is_exact=True),
    m.ForeachBatchSink: OperatorKind(Role.SINK, commits=True),  # its function may be called twice
    m.ConsoleSink: OperatorKind(Role.SINK),  # what is printed is shown as it comes
}


def kind_of(operator: m.Operator) -> OperatorKind | None:
    """The entry of an operator; None where its kind is missing, or newer than this program."""
    return KINDS.get(type(operator.kind))


def is_source(operator: m.Operator) -> bool:
    """True for operators that read from outside."""
    return _has(operator, Role.SOURCE)


def is_transform(operator: m.Operator) -> bool:
    """True for operators that turn records into records and keep nothing by key."""
    return _has(operator, Role.TRANSFORM)


def is_keyed(operator: m.Operator) -> bool:
    """True for operators that keep state by key, and so stand behind HASH edges."""
    return _has(operator, Role.KEYED)


def is_sink(operator: m.Operator) -> bool:
    """True for operators that write to outside."""
    return _has(operator, Role.SINK)


def commits(operator: m.Operator) -> bool:
    """True for sinks that hold output back until a checkpoint is complete."""
    kind = kind_of(operator)
    return kind is not None and kind.commits


def object_state_of(operator: m.Operator) -> m.ObjectState:
    """The state of a function's object, and how it is distributed; unspecified for none and for other operators."""
    kind = operator.kind
    return kind.state if isinstance(kind, m.RecordFunction) else m.ObjectState.OBJECT_STATE_UNSPECIFIED


def _has(operator: m.Operator, role: Role) -> bool:
    kind = kind_of(operator)
    return kind is not None and kind.role is role
