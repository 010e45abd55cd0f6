"""Runs the subtasks of a sampled graph one after another, as a task manager runs them side by side."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from lockgate_proto.broadcasts import broadcast_senders
from lockgate_proto.loops import before
from lockgate_proto.messages import AttemptId, JobGraph, SubtaskId, Watermark
from lockgate_taskmanager.task.program import Batch, Exhausted, Idle, ProgramContext, SubtaskProgram
from lockgate_taskmanager.task.watermarks import MAX_WATERMARK, ChannelWatermarks, held_back

if TYPE_CHECKING:
    from lockgate_taskmanager.spark.engine import SparkEngine

_IDLE_S = 5.0
"""A source that waits for input (Kafka, a socket) ends when there has been none for this long."""


class Runner:
    """One run of a graph whose vertices have one subtask each. Every method may raise ProgramError."""

    def __init__(self, engine: SparkEngine, graph: JobGraph, directory: str, run_id: str) -> None:
        self._engine, self._graph = engine, graph
        attempt = AttemptId("preview", run_id, 1)
        parallelism = {vertex.id: 1 for vertex in graph.vertices}
        self._programs: dict[str, SubtaskProgram] = {}
        self._watermarks: dict[str, ChannelWatermarks] = {}
        broadcast = {sender for vertex in graph.vertices for sender in broadcast_senders(graph, vertex.id)}
        self._broadcasting = {source for sender in broadcast for source in before(graph.edges, sender)}
        for vertex in graph.vertices:
            where = SubtaskId(attempt, vertex.id, 0)
            self._programs[vertex.id] = engine.build(ProgramContext(where, graph, directory, parallelism=parallelism))
            senders, silent = self._inputs(vertex.id), broadcast_senders(graph, vertex.id)
            self._watermarks[vertex.id] = ChannelWatermarks(
                len(senders), frozenset(number for number, sender in enumerate(senders) if sender in silent)
            )

    def run(self, rows: int) -> Mapping[str, int]:
        """Reads `rows` rows of each source, or all that there are, and ends the input. Returns what each has read.

        Sources of broadcast state come first, so that the state is there for the other records.
        """
        for vertex_id, program in self._programs.items():
            self._deliver(vertex_id, program.open())
        sources = [vertex_id for vertex_id, program in self._programs.items() if program.is_source]
        sources.sort(key=lambda vertex_id: vertex_id not in self._broadcasting)
        read = {vertex_id: self._read(vertex_id, rows) for vertex_id in sources}
        for program in self._programs.values():
            program.snapshot(1).persist()  # sinks hand over what they were given
        return read

    def close(self) -> None:
        """Releases everything."""
        for program in self._programs.values():
            program.close()

    def _read(self, vertex_id: str, rows: int) -> int:
        program = self._programs[vertex_id]
        program.assign(*self._engine.discover(self._graph, vertex_id, ()))
        read, last_s = 0, time.monotonic()
        while read < rows:
            poll = program.poll()
            if isinstance(poll, Exhausted) or (isinstance(poll, Idle) and time.monotonic() - last_s > _IDLE_S):
                break
            if isinstance(poll, Idle):
                time.sleep(min(poll.wait_ms, 100) / 1000)
                continue
            read, last_s = read + poll.read_rows, time.monotonic()
            self._deliver_all(vertex_id, poll)
            if poll.watermark is not None:
                self._advance(vertex_id, poll.watermark)
        self._advance(vertex_id, None)
        return read

    def _inputs(self, vertex_id: str) -> list[str]:
        return [edge.source for edge in self._graph.edges if edge.target == vertex_id]

    def _deliver(self, source: str, batch: Batch) -> None:
        for emission in batch.emissions:
            target = self._graph.edges[emission.edge].target
            self._tick(target)
            self._deliver_all(target, self._programs[target].process(source, emission.table))

    def _deliver_all(self, vertex_id: str, batch: Batch) -> None:
        self._deliver(vertex_id, batch)
        while batch.has_more:
            batch = self._programs[vertex_id].go_on()
            self._deliver(vertex_id, batch)

    def _tick(self, vertex_id: str) -> None:
        self._deliver_all(vertex_id, self._programs[vertex_id].tick(time.time_ns() // 1_000_000))

    def _advance(self, source: str, watermark: Watermark | None) -> None:
        """Tells those behind a vertex how far event time has come in it, None for its end."""
        for vertex_id, combined in self._watermarks.items():
            for channel, sender in enumerate(self._inputs(vertex_id)):
                if sender != source:
                    continue
                news = combined.ended(channel, False) if watermark is None else combined.arrived(channel, watermark)
                if news is not None and news.event_time_ms == MAX_WATERMARK and not news.idle:
                    self._deliver_all(vertex_id, self._programs[vertex_id].finish())
                    self._advance(vertex_id, None)
                elif news is not None:
                    self._tick(vertex_id)
                    batch = self._programs[vertex_id].advance(news.event_time_ms)
                    self._deliver_all(vertex_id, batch)
                    self._advance(vertex_id, held_back(news, batch.held_back_ms))
