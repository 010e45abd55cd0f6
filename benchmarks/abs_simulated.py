"""A model of the job of benchmarks.abs on many nodes, with costs that were measured on few. Pure.

A simulation of discrete events, not a measurement. What it assumes:

- Each node has one processor and one subtask of each of the four vertices. They take turns, a micro-batch each: while
  they share a processor, one that takes `batch_ms` has its share of that as work.
- A vertex needs `record_us` for each record of the sources, however many rows are left of it there: the cost is
  proportional, with no part for each batch or each channel. A batch takes that time times a factor from a gamma
  distribution with the mean 1 and the standard deviation `spread`.
- Each of the three shuffles distributes a batch evenly over all nodes. It arrives after `channel_ms`, whatever its size
  and their number: networks and switches are fast enough. Messages of the leader take as long.
- A sender waits while a receiver has more than `queued_batches` batches. A channel that has delivered its barrier is
  held back until all have; the alignment delay of each is what the simulation finds, no input.
- A snapshot stops its subtask for `sync_ms`. It is stored in `store_ms`, in the background and without processor time:
  the storage serves any number at once. State does not grow with the nodes: keys for each subtask stay as many.
- A checkpoint is complete `leader_ms` after its last acknowledgement, and `leader_subtask_ms` for each subtask. The
  leader has a machine of its own. Then each sink subtask commits, which takes `commit_ms` of its node's processor.
- With the world stopped, sources read nothing from their barrier until the checkpoint is complete.
- A checkpoint begins `interval_ms` after the one before it, or when that is complete. Nothing fails, and nodes are
  equal. Start, last checkpoint and end of the job are left out.
"""

from __future__ import annotations

import heapq
import random
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import count

VERTICES = 4  # generate and map; map; filter with partial aggregates; aggregate and upsert
_SINK = VERTICES - 1


@dataclass(frozen=True, slots=True)
class Costs:
    """Milliseconds, and microseconds for each record of a source; tuples have an entry for each vertex."""

    record_us: tuple[float, ...]
    sync_ms: tuple[float, ...]
    store_ms: tuple[float, ...]
    commit_ms: float
    leader_ms: float
    leader_subtask_ms: float
    batch_ms: float = 300.0  # the setting `target_batch_ms`
    channel_ms: float = 1.0
    spread: float = 0.2
    queued_batches: float = 2.0


@dataclass(frozen=True, slots=True)
class Snapshots:
    """When snapshots are taken, and whether the sources wait for them."""

    interval_ms: float
    stops: bool


@dataclass(frozen=True, slots=True)
class Outcome:
    """seconds: until the last record is in a sink's subtask; records: there; durations and, for each checkpoint, the
    longest alignment of any subtask in ms.
    """

    seconds: float
    records: float
    durations_ms: tuple[float, ...]
    alignments_ms: tuple[float, ...]


def slowdown(costs: Costs, nodes: int, snapshots: Snapshots, seconds: float = 120.0, runs: int = 3) -> float:
    """The time that snapshots add, as a share of the time without, in runs that take about so many seconds without:
    the mean over a few, each against one with the same factors.
    """
    records = seconds * 1e6 / sum(costs.record_us)
    return statistics.fmean(
        simulated(costs, nodes, records, snapshots, seed).seconds / simulated(costs, nodes, records, None, seed).seconds
        - 1
        for seed in range(runs)
    )


def simulated(costs: Costs, nodes: int, records: float, snapshots: Snapshots | None, seed: int = 0) -> Outcome:
    """One run of the job. records: of each source."""
    return _Simulation(costs, nodes, records, snapshots, seed).run()


class _Subtask:
    """ready: records that it may process, of a source those that are left; held: those behind barriers."""

    __slots__ = ("aligns_since", "delivered", "draws", "has_duty", "held", "is_paused", "ready", "vertex")

    def __init__(self, vertex: int, records: float, draws: random.Random) -> None:
        self.vertex, self.draws = vertex, draws
        self.ready = 0.0 if vertex else records
        self.held = self.aligns_since = 0.0
        self.delivered: set[int] = set()  # nodes from which the barrier is here
        self.has_duty = False  # of a source: to take a snapshot; of a sink: to commit
        self.is_paused = False


class _Node:
    """One processor. turn: the vertex that may have it next."""

    __slots__ = ("is_busy", "number", "subtasks", "turn")

    def __init__(self, number: int, records: float, seed: int) -> None:
        self.number, self.turn, self.is_busy = number, 0, False
        self.subtasks = [
            _Subtask(vertex, records, random.Random(f"{seed} {number} {vertex}")) for vertex in range(VERTICES)
        ]


class _Simulation:
    """The state of one run. Times in milliseconds."""

    def __init__(self, costs: Costs, nodes: int, records: float, snapshots: Snapshots | None, seed: int) -> None:
        self._costs, self._snapshots = costs, snapshots
        self._nodes = [_Node(number, records, seed) for number in range(nodes)]
        self._total = nodes * records
        self._most = [costs.batch_ms * 1000 / VERTICES / cost for cost in costs.record_us]  # records of a batch
        self._full: list[set[int]] = [set() for _ in range(VERTICES)]  # nodes without room for any sender
        self._holding: list[set[int]] = [set() for _ in range(VERTICES)]  # without room for those that are held back
        self._now = self._ended = self._arrived = 0.0
        self._order = count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._missing = 0  # acknowledgements of the checkpoint under way
        self._triggered = self._alignment = 0.0
        self._durations: list[float] = []
        self._alignments: list[float] = []

    def run(self) -> Outcome:
        """To the last record."""
        if self._snapshots is not None:
            self._after(self._snapshots.interval_ms, self._trigger)
        self._give_turns()
        while self._arrived < self._total * (1 - 1e-9):
            self._now, _, happens = heapq.heappop(self._events)
            happens()
        return Outcome(self._ended / 1000, self._arrived, tuple(self._durations), tuple(self._alignments))

    def _after(self, delay_ms: float, happens: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self._now + delay_ms, next(self._order), happens))

    # processors

    def _give_turns(self) -> None:
        for node in self._nodes:
            self._give_turn(node)

    def _give_turn(self, node: _Node) -> None:
        """The next subtask that has something to do gets the processor."""
        for offset in range(0 if node.is_busy else VERTICES):
            subtask = node.subtasks[(node.turn + offset) % VERTICES]
            begun = self._begun(node, subtask)
            if begun is not None:
                node.is_busy, node.turn = True, (subtask.vertex + 1) % VERTICES
                took_ms, done = begun
                self._after(took_ms, partial(self._finish, node, done))
                return

    def _finish(self, node: _Node, done: Callable[[], None]) -> None:
        node.is_busy = False
        done()
        self._give_turn(node)

    def _begun(self, node: _Node, subtask: _Subtask) -> tuple[float, Callable[[], None]] | None:
        """What the subtask does now: how long it takes, and what follows; None: it waits."""
        vertex = subtask.vertex
        if vertex == _SINK and subtask.has_duty:
            subtask.has_duty = False
            return self._costs.commit_ms, _nothing
        if subtask.has_duty or (len(subtask.delivered) == len(self._nodes) and not subtask.ready):
            return self._costs.sync_ms[vertex], partial(self._snapshot_taken, node, subtask)
        if subtask.is_paused or not subtask.ready or self._has_to_wait(node, vertex):
            return None
        records = min(subtask.ready, self._most[vertex])
        subtask.ready -= records
        self._note_room(node, subtask)
        took_ms = records * self._costs.record_us[vertex] / 1000 * self._factor(subtask)
        return took_ms, partial(self._batch_processed, node, vertex, records)

    def _factor(self, subtask: _Subtask) -> float:
        variance = self._costs.spread**2
        return subtask.draws.gammavariate(1 / variance, variance) if variance else 1.0

    def _batch_processed(self, node: _Node, vertex: int, records: float) -> None:
        if vertex == _SINK:
            self._arrived += records
            self._ended = self._now
        else:
            self._after(self._costs.channel_ms, partial(self._records_arrive, node.number, vertex + 1, records))

    # channels

    def _records_arrive(self, sender: int, vertex: int, records: float) -> None:
        share = records / len(self._nodes)
        for node in self._nodes:
            subtask = node.subtasks[vertex]
            if sender in subtask.delivered:
                subtask.held += share
            else:
                subtask.ready += share
            self._note_room(node, subtask)
            self._give_turn(node)

    def _barriers_arrive(self, sender: int, vertex: int) -> None:
        for node in self._nodes:
            subtask = node.subtasks[vertex]
            if not subtask.delivered:
                subtask.aligns_since = self._now
            subtask.delivered.add(sender)
            if len(subtask.delivered) == len(self._nodes):
                self._alignment = max(self._alignment, self._now - subtask.aligns_since)
                self._give_turn(node)

    def _has_to_wait(self, node: _Node, vertex: int) -> bool:
        """Whether a receiver has no room for what this sender has."""
        if vertex == _SINK:
            return False
        holding = self._holding[vertex + 1]
        return bool(self._full[vertex + 1]) or any(
            node.number in self._nodes[number].subtasks[vertex + 1].delivered for number in holding
        )

    def _note_room(self, node: _Node, subtask: _Subtask) -> None:
        """After a change of what waits at a receiver. Senders go on when there is room again."""
        vertex = subtask.vertex
        if not vertex:
            return
        room = self._costs.queued_batches * self._most[vertex]
        held_room = room * len(subtask.delivered) / len(self._nodes)
        for nodes, is_over in (
            (self._full[vertex], subtask.ready > room),
            (self._holding[vertex], subtask.held > held_room),
        ):
            if is_over:
                nodes.add(node.number)
            elif node.number in nodes:
                nodes.discard(node.number)
                self._after(0, self._give_turns)

    # checkpoints

    def _trigger(self) -> None:
        self._triggered, self._alignment = self._now, 0.0
        self._missing = VERTICES * len(self._nodes)
        self._after(self._costs.channel_ms, self._order_barriers)

    def _order_barriers(self) -> None:
        for node in self._nodes:
            node.subtasks[0].has_duty = True
            self._give_turn(node)

    def _snapshot_taken(self, node: _Node, subtask: _Subtask) -> None:
        """The barrier goes on, the state is stored, and what was held back may be processed."""
        if subtask.vertex < _SINK:
            self._after(self._costs.channel_ms, partial(self._barriers_arrive, node.number, subtask.vertex + 1))
        if not subtask.vertex:
            assert self._snapshots is not None
            subtask.has_duty, subtask.is_paused = False, self._snapshots.stops
        else:
            subtask.ready, subtask.held = subtask.held, 0.0
            subtask.delivered.clear()
            self._note_room(node, subtask)
        self._after(self._costs.store_ms[subtask.vertex] + self._costs.channel_ms, self._acknowledged)

    def _acknowledged(self) -> None:
        self._missing -= 1
        if not self._missing:
            subtasks = VERTICES * len(self._nodes)
            self._after(self._costs.leader_ms + subtasks * self._costs.leader_subtask_ms, self._completed)

    def _completed(self) -> None:
        assert self._snapshots is not None
        self._durations.append(self._now - self._triggered)
        self._alignments.append(self._alignment)
        self._after(self._costs.channel_ms, self._notify_complete)
        self._after(max(0.0, self._triggered + self._snapshots.interval_ms - self._now), self._trigger)

    def _notify_complete(self) -> None:
        for node in self._nodes:
            node.subtasks[0].is_paused = False
            node.subtasks[_SINK].has_duty = True
            self._give_turn(node)


def _nothing() -> None:
    """Follows a commit."""
