"""StateGrowth: which states have become so large that the log names them, each time that they have doubled."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lockgate_common.amounts import size_text
from lockgate_proto.messages import (
    CountWindow,
    Deduplicate,
    IntervalJoin,
    KeyedAggregate,
    KeyedProcess,
    MemoryBackend,
    Operator,
    RecordFunction,
    RocksdbBackend,
    StateBackend,
    WindowProcess,
)
from lockgate_proto.operators import is_keyed, is_source

from lockgate_taskmanager.state.backend import DEFAULT_MEMORY_LIMIT

LARGE_BYTES = 256 << 20
"""In memory. Python's objects take several times as much."""
LARGE_ON_DISK_BYTES = 1 << 30


class StateGrowth:
    """Of one subtask and attempt. Pure; the sizes are those of its snapshots, so it costs the same for any state."""

    def __init__(self, operators: Sequence[Operator], choice: StateBackend | None) -> None:
        """operators: of the subtask."""
        backend = choice.backend if choice is not None else None
        self._operators = {operator.id: operator for operator in operators}
        self._is_on_disk = isinstance(backend, RocksdbBackend)
        self._most_bytes = 0  # of a snapshot; 0: no limit
        if isinstance(backend, MemoryBackend):
            self._most_bytes = backend.max_state_bytes or DEFAULT_MEMORY_LIMIT
        self._named_from: dict[str, int] = {}  # bytes by operator id
        self._is_near_limit = False

    def sentences(self, sizes: Iterable[tuple[str, int]]) -> list[str]:
        """What to say about a new snapshot. sizes: bytes by operator id, each once."""
        known = dict(sizes)
        found = [self._large(name, size) for name, size in known.items() if self._has_doubled(name, size)]
        if 0 < self._most_bytes <= 2 * sum(known.values()) and not self._is_near_limit:
            self._is_near_limit = True
            found.append(self._near_limit(known))
        return found

    def _has_doubled(self, operator_id: str, size_bytes: int) -> bool:
        """Since it was last named, if it was."""
        first = LARGE_ON_DISK_BYTES if self._is_in_database(operator_id) else LARGE_BYTES
        named_from = self._named_from.get(operator_id, first)
        if size_bytes < named_from:
            return False
        while named_from <= size_bytes:
            named_from *= 2
        self._named_from[operator_id] = named_from
        return True

    def _large(self, operator_id: str, size_bytes: int) -> str:
        place = "on the disk of the task manager" if self._is_in_database(operator_id) else "in memory"
        size = size_text(size_bytes)
        return f"the state of operator '{operator_id}' has {size}, {place}; {self._contents(operator_id)}"

    def _near_limit(self, sizes: dict[str, int]) -> str:
        largest = max(sizes, key=lambda operator_id: sizes[operator_id])
        return (
            f"the state has {size_text(sum(sizes.values()))} of the {size_text(self._most_bytes)} that the memory"
            f" backend allows a subtask, {size_text(sizes[largest])} of it in operator '{largest}'; above that no"
            f" checkpoint completes; the filesystem backend has no limit; {self._contents(largest)}"
        )

    def _is_in_database(self, operator_id: str) -> bool:
        operator = self._operators.get(operator_id)
        return self._is_on_disk and operator is not None and is_keyed(operator)

    def _contents(self, operator_id: str) -> str:
        operator = self._operators.get(operator_id)
        return contents_of(operator) if operator is not None else "the job has no such operator"


def contents_of(operator: Operator) -> str:
    """What its state has in it, and what leaves less of it."""
    match operator.kind:
        case KeyedAggregate(window=None):
            return "it has a row for every key that ever came; a window, or a process function with a ttl, forgets keys"
        case KeyedAggregate() | WindowProcess():
            return (
                "it has the windows that time has not passed; a source that falls behind holds them open, and shorter"
                " windows or a smaller allowed lateness leave fewer"
            )
        case CountWindow():
            return "it has the last records of every key that ever came; a process function with a ttl forgets keys"
        case Deduplicate(ttl_ms=0):
            return "it has every key that ever came; give deduplicate() a ttl"
        case Deduplicate():
            return "it has the keys of its ttl; a shorter one leaves fewer"
        case IntervalJoin():
            return (
                "it has the rows that may still find a partner; a side that falls behind holds those of the other, and"
                " a shorter interval leaves fewer"
            )
        case KeyedProcess():
            return "it has what its function has not cleared; clear states, or declare them with a ttl"
        case RecordFunction():
            return "it has whatever its object adds to it; remove what is not needed any more"
        case _ if is_source(operator):
            return "it has a position for each split"
        case _:
            return "it has what is not committed yet"
