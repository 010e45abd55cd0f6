"""What each subtask contributed to the newest completed checkpoints, for display. Bounded: see CheckpointDetails."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterator, Sequence

from lockgate_proto.messages import AcknowledgeCheckpoint, SubtaskSnapshot

from lockgate_coordinator.checkpoint.events import SubtaskKey
from lockgate_coordinator.checkpoint.handles import size_bytes, written_bytes

MOST_CHECKPOINTS = 20
MOST_SUBTASKS = 10_000  # of all of them together, unless the newest alone has more
_MOST = (1 << 63) - 1
_COLUMNS = 6  # of numbers: duration, size, written, sync, async, alignment


class SnapshotDetails:
    """Of one checkpoint, as its acknowledgements arrive. Takes 56 bytes for each."""

    def __init__(self, checkpoint_id: int, places: Sequence[str]) -> None:
        """places: the task manager of slot i, in which subtask i of every vertex is."""
        self.checkpoint_id = checkpoint_id
        self.triggered_unix_ms = 0
        self._places = places
        self._keys: list[SubtaskKey] = []
        self._numbers = array("q")

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, key: SubtaskKey, ack: AcknowledgeCheckpoint, took_ms: int) -> None:
        """A subtask has acknowledged. took_ms: since the checkpoint was triggered."""
        states = (ack.state,) if ack.state is not None else ()
        sizes = size_bytes(states), written_bytes(states, self.checkpoint_id)
        self._keys.append(key)
        found = (took_ms, *sizes, ack.sync_us, ack.async_ms, ack.alignment_ms)
        self._numbers.extend([min(max(number, 0), _MOST) for number in found])

    @property
    def size_bytes(self) -> int:
        """Of the states that are acknowledged so far."""
        return min(sum(self._numbers[1::_COLUMNS]), _MOST)

    @property
    def written_bytes(self) -> int:
        """The part of it that this checkpoint wrote itself."""
        return min(sum(self._numbers[2::_COLUMNS]), _MOST)

    def subtasks(self) -> Iterator[SubtaskSnapshot]:
        """In the order of the acknowledgements. Any thread may read those of a completed checkpoint."""
        numbers = iter(self._numbers)
        for vertex, subtask in self._keys:
            place = self._places[subtask] if subtask < len(self._places) else ""
            took_ms, size, written, sync_us, async_ms, alignment_ms = (next(numbers) for _ in range(_COLUMNS))
            yield SubtaskSnapshot(vertex, subtask, place, took_ms, size, written, sync_us, async_ms, alignment_ms)


class CheckpointDetails:
    """Of the newest completed checkpoints under this leader."""

    def __init__(self) -> None:
        self._kept: deque[SnapshotDetails] = deque()

    def keep(self, found: SnapshotDetails) -> None:
        """A checkpoint is completed: the oldest ones make room."""
        self._kept.append(found)
        while len(self._kept) > 1 and (len(self._kept) > MOST_CHECKPOINTS or sum(map(len, self._kept)) > MOST_SUBTASKS):
            self._kept.popleft()

    def of(self, checkpoint_id: int) -> SnapshotDetails | None:
        """None when they are not kept (any more)."""
        return next((found for found in self._kept if found.checkpoint_id == checkpoint_id), None)
