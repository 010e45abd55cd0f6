"""The input of one subtask: held channels, ordering, and grouping of records for the program."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import assert_never

import pyarrow as pa
from lockgate_proto.messages import Barrier, CheckpointMode, EndOfInput, Watermark

from lockgate_taskmanager.barrier import events as barrier_events
from lockgate_taskmanager.barrier.modes import barriers_for
from lockgate_taskmanager.exchange.elements import Element
from lockgate_taskmanager.exchange.gate import POLL_BYTES, InputGate
from lockgate_taskmanager.runtime.loop_part import LoopPart
from lockgate_taskmanager.runtime.output_set import OutputSet
from lockgate_taskmanager.task import events as on
from lockgate_taskmanager.task.watermarks import ChannelWatermarks

TARGET_MS = 200
LEAST_BYTES = 64 * 1024
SMOOTHING = 0.5


@dataclass(frozen=True, slots=True)
class Records:
    """Tables for the program, each with the vertex that sent it, in order of arrival. At least one."""

    tables: Sequence[tuple[str, pa.Table]]


Step = (
    Records
    | Watermark
    | barrier_events.Aligned
    | barrier_events.Overtaken
    | barrier_events.AlignmentAborted
    | on.InputExhausted
)
"""The next step of the subtask; a Watermark is the combination over all channels."""


class SubtaskInput:
    """Used by the subtask's thread. A source has no channels, and its input is always empty.

    loop: set when the vertex is in a loop. silent: the vertices whose records become broadcast state here. take_step:
    called for each Step, in order; it may call `barrier` meanwhile.
    """

    def __init__(
        self,
        gate: InputGate,
        mode: CheckpointMode,
        loop: LoopPart | None,
        silent: frozenset[str],
        take_step: Callable[[Step], None],
    ) -> None:
        count = len(gate.channels)
        self.is_drained = False  # the sources were drained and may have more input
        self._gate, self._loop, self._take_step = gate, loop, take_step
        self._barriers = barriers_for(mode, count, gate.feedback) if count else None
        channels = enumerate(gate.channels)
        self._watermarks = ChannelWatermarks(
            count, frozenset(number for number, channel in channels if channel.vertex_id in silent)
        )
        self._pace = BatchPace(POLL_BYTES) if mode is CheckpointMode.UNALIGNED or loop is not None else None
        self._deliveries = Deliveries()
        self._early: list[barrier_events.BarrierOvertakes] = []  # while the gate has records that come before all
        self._is_over = False

    def poll(self, timeout_s: float | None) -> list[tuple[int, Element]]:
        """As InputGate.poll, but of records no more than an overtaking barrier can wait for."""
        return self._gate.poll(timeout_s, POLL_BYTES if self._pace is None else self._pace.limit_bytes)

    def take(self, elements: Iterable[tuple[int, Element]], outputs: OutputSet, now_ms: Callable[[], int]) -> None:
        """Turns the result of a poll into steps. Raises what they raise, and what sending to a loop raises."""
        records: list[tuple[str, pa.Table]] = []
        for channel, element in elements:
            if isinstance(element, EndOfInput):
                self.is_drained |= element.drained
            if self._loop is not None and self._loop.takes(
                channel, element, outputs, lambda event: self.barrier(event, now_ms())
            ):
                continue
            self.barrier(barrier_event(channel, element), now_ms(), records)
            if isinstance(element, EndOfInput) and not self._is_over:
                self._advance(self._watermarks.ended(channel, element.drained))
        self._deliver(records)
        if self._early and not self._gate.has_moved:
            early, self._early = self._early, []
            for event in early:
                self.barrier(event, now_ms())

    def barrier(
        self, event: barrier_events.Event, now_ms: int, records: list[tuple[str, pa.Table]] | None = None
    ) -> None:
        """Handles an event with the barrier handler. records: taken but not yet processed.

        A barrier does not overtake records that were moved here from another parallelism. The snapshot would not say
        that they come first.
        """
        if isinstance(event, barrier_events.BarrierOvertakes) and self._gate.has_moved:
            self._early.append(event)
        elif self._barriers is not None:
            for effect in self._barriers.handle(event, now_ms):
                self._apply(effect, [] if records is None else records)

    def merged(self, records: Records) -> Iterator[tuple[str, pa.Table]]:
        """The same records in fewer tables; see Deliveries."""
        return self._deliveries.merge(records.tables)

    def processed(self, records: Records, took_ms: float) -> None:
        """The program needed `took_ms` for these records; sizes the next poll accordingly."""
        if self._pace is not None:
            self._pace.processed(sum(table.nbytes for _, table in records.tables), took_ms)

    def _apply(self, effect: barrier_events.Effect, records: list[tuple[str, pa.Table]]) -> None:
        match effect:
            case barrier_events.Deliver(channel, element):
                if isinstance(element, pa.Table):
                    records.append((self._gate.channels[channel].vertex_id, element))
                elif isinstance(element, Watermark):
                    self._deliver(records)
                    self._advance(self._watermarks.arrived(channel, element))
            case barrier_events.Hold(channel):
                self._gate.hold(channel)
            case barrier_events.Release(channels):
                self._gate.release(channels)
            case barrier_events.Aligned() | barrier_events.Overtaken() | barrier_events.AlignmentAborted():
                self._take_step(effect)
            case barrier_events.AllInputsEnded():
                self._is_over = True
                self._take_step(on.InputExhausted())
            case _:
                assert_never(effect)

    def _deliver(self, records: list[tuple[str, pa.Table]]) -> None:
        if records:
            self._take_step(Records(tuple(records)))
            records.clear()

    def _advance(self, watermark: Watermark | None) -> None:
        if watermark is not None:
            self._take_step(watermark)


def barrier_event(channel: int, element: Element) -> barrier_events.Event:
    """The barrier handler's event for an element that arrived on an input channel, numbered from 0."""
    if isinstance(element, Barrier):
        return barrier_events.BarrierArrived(channel, element)
    if isinstance(element, EndOfInput):
        return barrier_events.InputEnded(channel)
    return barrier_events.ElementArrived(channel, element)


class Deliveries:
    """Remembers which prologues a subtask has received; several channels deliver the same one."""

    def __init__(self) -> None:
        self._prologues: list[tuple[str, pa.Schema]] = []

    def merge(self, received: Iterable[tuple[str, pa.Table]]) -> Iterator[tuple[str, pa.Table]]:
        """Merges (source vertex, table) pairs: tables of one vertex and schema become one, new prologues come first."""
        groups: list[tuple[str, pa.Schema, list[pa.Table]]] = []
        for vertex, table in received:
            if table.num_rows == 0:
                if not self._is_known(vertex, table.schema):
                    self._prologues.append((vertex, table.schema))
                    yield vertex, table
                continue
            for known, schema, tables in groups:
                if known == vertex and schema.equals(table.schema):
                    tables.append(table)
                    break
            else:
                groups.append((vertex, table.schema, [table]))
        for vertex, _, tables in groups:
            yield vertex, tables[0] if len(tables) == 1 else pa.concat_tables(tables)

    def _is_known(self, vertex: str, schema: pa.Schema) -> bool:
        return any(known == vertex and seen.equals(schema) for known, seen in self._prologues)


class BatchPace:
    """Pure. Sizes batches so that one takes about TARGET_MS, from LEAST_BYTES up to `most_bytes`."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._limit = float(LEAST_BYTES)

    @property
    def limit_bytes(self) -> int:
        """The size of the next batch."""
        return int(self._limit)

    def processed(self, size_bytes: int, took_ms: float) -> None:
        """A batch of `size_bytes` took `took_ms`. A small batch predicts little about a large one."""
        fits = size_bytes * TARGET_MS / max(took_ms, 1.0)
        wanted = fits if fits < self._limit else max(self._limit, min(fits, self._limit * 2))
        smooth = self._limit + SMOOTHING * (wanted - self._limit)
        self._limit = min(max(smooth, LEAST_BYTES), self._most)
