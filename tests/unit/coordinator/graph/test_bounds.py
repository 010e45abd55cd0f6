"""Every number, text and list of a job graph is bounded at submission, those that a later field brings as well."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from lockgate_common.clock import monotonic_ms
from lockgate_coordinator.graph import bounds, slots
from lockgate_coordinator.graph.normalize import normalize
from lockgate_coordinator.graph.shape import slots_needed
from lockgate_coordinator.graph.slots import RequestSlots, SlotPool, SlotsOffered, TaskManagerAdded
from lockgate_coordinator.graph.validate import validate
from lockgate_coordinator.graph.warnings import warnings
from lockgate_coordinator.job.restart import RestartAfter, RestartPolicy
from lockgate_coordinator.runtime.actor import Actor
from lockgate_proto import messages as m
from lockgate_proto.codec import from_pb
from lockgate_proto.v1 import graph_pb2

from tests.unit.coordinator.driver import Driver
from tests.unit.coordinator.jobs import FILES, tiny, word_count

_INTEGERS = {
    FieldDescriptor.TYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.TYPE_INT64: (-(2**63), 2**63 - 1),
}
_FLOATS = (FieldDescriptor.TYPE_DOUBLE, FieldDescriptor.TYPE_FLOAT)

# Numbers whose whole range is harmless, because nothing grows with them: why is said beside their bound.
HARMLESS = {
    ("FileSource", "poll_interval_ms", 2**31 - 1),
    ("PythonSource", "poll_interval_ms", 2**31 - 1),
    ("KafkaSource", "poll_interval_ms", 2**31 - 1),
    ("GeneratorSource", "rows_per_partition", 2**63 - 1),
    ("CheckpointOptions", "tolerable_failures", 2**31 - 1),
    ("FixedDelayRestart", "attempts", 2**31 - 1),
}


def _kinds(root: Descriptor) -> Iterator[Descriptor]:
    """Every message that a job graph can hold."""
    seen: dict[str, Descriptor] = {}
    waiting = [root]
    while waiting:
        subject = waiting.pop()
        if subject.full_name not in seen:
            seen[subject.full_name] = subject
            waiting += [field.message_type for field in subject.fields if field.message_type is not None]
    return (descriptor for descriptor in seen.values() if not descriptor.GetOptions().map_entry)


KINDS = tuple(_kinds(graph_pb2.JobGraph.DESCRIPTOR))
NUMBERS = [
    (kind.name, field.name, value)
    for kind in KINDS
    for field in kind.fields
    for value in (
        *_INTEGERS.get(field.type, ()),
        *((1e308, math.inf, -math.inf, math.nan) if field.type in _FLOATS else ()),
    )
]
TEXTS = [
    (kind.name, field.name) for kind in KINDS for field in kind.fields if field.type == FieldDescriptor.TYPE_STRING
]
LISTS = [(kind.name, field.name) for kind in KINDS for field in kind.fields if field.is_repeated]


def _place(kind: str) -> Message:
    """A job graph in which the message of this kind is there, and the message."""
    graph = graph_pb2.JobGraph()
    vertex = graph.vertices.add(id="v", parallelism=1)
    found: dict[str, Message] = {"JobGraph": graph, "Vertex": vertex}
    _PLACED[kind] = graph
    for path in _paths(graph_pb2.JobGraph.DESCRIPTOR, kind, ()):
        at: Message = graph
        for name in path:
            field = at.DESCRIPTOR.fields_by_name[name]
            part = getattr(at, name)
            if field.is_repeated:
                at = part[0] if len(part) else part.add()
            else:
                part.SetInParent()
                at = part
        return at
    return found[kind]


_PLACED: dict[str, Any] = {}


def _paths(at: Descriptor, kind: str, so_far: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if at.name == kind:
        yield so_far
        return
    for field in at.fields:
        inner = field.message_type
        if inner is not None and not inner.GetOptions().map_entry and len(so_far) < 6:
            yield from itertools.islice(_paths(inner, kind, (*so_far, field.name)), 1)


def _with(kind: str, name: str, value: Any) -> m.JobGraph:
    at = _place(kind)
    for other in ("size_ms", "slide_ms", "step_ms"):
        if other in at.DESCRIPTOR.fields_by_name:
            setattr(at, other, 1_000)
    if at.DESCRIPTOR.fields_by_name[name].is_repeated:
        getattr(at, name).extend(value)
    else:
        setattr(at, name, value)
    return from_pb(m.JobGraph, _PLACED[kind])


@pytest.mark.parametrize(("kind", "name", "value"), NUMBERS)
def test_the_extremes_of_every_number_are_refused(kind: str, name: str, value: float) -> None:
    graph = _with(kind, name, value)
    problems = set(validate(graph)) - set(validate(_with(kind, name, 1)))
    assert bool(problems) == ((kind, name, value) not in HARMLESS), problems


@pytest.mark.parametrize(("kind", "name"), TEXTS)
def test_no_text_holds_a_nul_or_is_endless(kind: str, name: str) -> None:
    for value, reason in (("a\0b", "NUL"), ("x" * (bounds.MAX_TEXT + 1), f"of {bounds.MAX_TEXT + 1} characters")):
        is_repeated = _place(kind).DESCRIPTOR.fields_by_name[name].is_repeated
        problems = validate(_with(kind, name, [value] if is_repeated else value))
        assert any(reason in problem and name in problem for problem in problems), problems
        assert all(len(problem) < 1_000 for problem in problems)


def test_every_number_and_every_list_has_a_bound() -> None:
    numbers = {(kind, name) for kind, name, _ in NUMBERS}
    assert {(kind.__name__, name) for kind, name in bounds.MOST} == numbers
    texts = set(TEXTS)
    assert {(kind.__name__, name) for kind, name in bounds.LONGEST} <= texts
    assert LISTS


def test_lists_are_bounded() -> None:
    graph = word_count()
    edges = tuple(m.Edge("read", "count", m.Partitioning.REBALANCE) for _ in range(bounds.MAX_EDGES + 1))
    assert validate(replace(graph, edges=edges)) == ("The job has 10001 edges: the limit is 10000.",)
    vertices = tuple(m.Vertex(f"v{n}", parallelism=1) for n in range(bounds.MAX_VERTICES + 1))
    assert validate(replace(graph, vertices=vertices)) == ("The job has 1001 vertices: the limit is 1000.",)
    options = {f"o{n}": "" for n in range(bounds.MAX_ITEMS + 1)}
    assert validate(tiny(replace(FILES, options=options))) == (
        "Operator 'source' has 1001 options: the limit is 1000.",
    )
    hidden = validate(tiny(replace(FILES, options={"sep": "\0"})))
    assert hidden == ("Operator 'source' has a options with a NUL character in it: '\\x00'.",)


def test_subtasks_are_counted_together() -> None:
    vertices = tuple(
        m.Vertex(f"v{n}", parallelism=20_000, max_parallelism=32_768, operators=(m.Operator("s", kind=FILES),))
        for n in range(2)
    )
    problems = validate(m.JobGraph(vertices=vertices))
    assert problems == ("The job has 40000 subtasks, the sum of its parallelisms: the limit is 20000.",)


@pytest.mark.parametrize("rate", [1e308, 5e-324, 1e-7, 2e9])
def test_a_rate_that_no_clock_can_keep_is_refused(rate: float) -> None:
    problems = validate(tiny(m.GeneratorSource(rows_per_second=rate)))
    assert len(problems) == 1
    assert f"{rate}" in problems[0]


@pytest.mark.parametrize("rate", [0, bounds.LEAST_RATE, 0.5, 1_000, bounds.MAX_RATE])
def test_a_rate_within_bounds_is_fine(rate: float) -> None:
    assert not validate(tiny(m.GeneratorSource(rows_per_second=rate, partitions=bounds.MAX_PARALLELISM)))


def test_a_graph_at_its_bounds_is_fine() -> None:
    source = m.GeneratorSource(bounds.MAX_PARALLELISM, 2**63 - 1, bounds.MAX_RATE)
    checkpoints = m.CheckpointOptions(bounds.MAX_DURATION_MS, bounds.MAX_DURATION_MS, retained=bounds.MAX_RETAINED)
    graph = word_count(source, parallelism=bounds.MAX_SUBTASKS // 2, checkpoints=checkpoints)
    wide = tuple(replace(vertex, max_parallelism=bounds.MAX_PARALLELISM) for vertex in graph.vertices)
    graph = replace(graph, vertices=wide)
    assert not validate(graph)
    assert slots_needed(normalize(graph)) == 10_000
    assert warnings(graph) == ()


# -- what one event may cost ------------------------------------------------------------------------------------------


def test_a_job_of_former_days_with_too_many_partitions_fails_at_once() -> None:
    """Its record was written before partitions were bounded; a leader that counted them would never come back."""
    driver = Driver(word_count(m.GeneratorSource(partitions=2**31 - 1)))
    driver.deploy(driver.recover().request)
    assert not driver.sent(m.Deploy)
    result = driver.result()
    assert result.outcome == "FAILED"
    assert "generates 2147483647 partitions: the limit is 32768" in result.error
    assert result.keep_files


def test_the_longest_timers_do_not_end_the_thread_that_decides() -> None:
    actor = Actor("test-actor")
    actor.at(monotonic_ms() + 2**63 - 1, lambda: None)
    actor.start()
    try:
        assert actor.ask(lambda: 7).result(60) == 7
    finally:
        actor.stop()


def test_a_restart_delay_costs_the_same_after_any_number_of_failures() -> None:
    strategy = m.ExponentialRestart(initial_ms=50, max_ms=10_000, multiplier=1.0, jitter=0.0, reset_after_ms=30_000)
    policy = RestartPolicy(strategy)
    policy._consecutive = 10**12
    assert policy.failed(0, 0, 0.5) == RestartAfter(50)


@pytest.mark.parametrize("multiplier", [1.0, 1.5, 2.0, 1e6])
def test_restart_delays_grow_as_they_did(multiplier: float) -> None:
    strategy = m.ExponentialRestart(50, 10_000, multiplier, 0.0, 30_000)
    policy, expected = RestartPolicy(strategy), 50.0
    for _ in range(40):
        assert policy.failed(0, 0, 0.5) == RestartAfter(round(expected))
        expected = min(expected * multiplier, 10_000.0)


def test_a_wide_job_gets_its_slots_in_one_look_at_each_task_manager(monkeypatch: pytest.MonkeyPatch) -> None:
    pool, looks = SlotPool(), []
    for number in range(200):
        pool.handle(TaskManagerAdded(f"tm{number}", "a:1", 10), 0)
    free = slots._TaskManager.free.fget
    assert free is not None
    monkeypatch.setattr(slots._TaskManager, "free", property(lambda item: (looks.append(1), free(item))[1]))
    granted = pool.handle(RequestSlots("wide", 1, 2_000), 0)
    assert isinstance(granted[0], SlotsOffered)
    assert len(looks) <= 200 * 10 * 3  # and not 2,000 slots times 200 task managers
