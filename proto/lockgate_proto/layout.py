"""Where the subtasks of an attempt run, as a Deploy says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lockgate_proto.codec import MalformedMessage, decode
from lockgate_proto.messages import Deploy, JobGraph, Layout, Participant


def layout_of(deploy: Deploy) -> Layout:
    """The layout in a Deploy. Raises MalformedMessage when it has none, or one that contradicts itself."""
    layout = decode(Layout, deploy.layout)
    if layout.graph is None:
        raise MalformedMessage("the layout of a Deploy has no graph")
    if any(not 0 <= number < len(layout.participants) for number in layout.slots):
        raise MalformedMessage("a slot of the layout belongs to none of its task managers")
    if any(vertex.parallelism > len(layout.slots) for vertex in layout.graph.vertices):
        raise MalformedMessage("the layout has too few slots for its graph")
    return layout


def layout_for(graph: JobGraph, slots: Sequence[Participant], began: Sequence[int] = ()) -> Layout:
    """slots[i] runs subtask i of every vertex. graph: normalized. began: as in Layout."""
    numbers = {place: number for number, place in enumerate(dict.fromkeys(slots))}
    return Layout(graph, tuple(numbers), tuple(numbers[place] for place in slots), tuple(began))


def subtasks_on(layout: Layout, task_manager_id: str) -> Iterator[tuple[str, int]]:
    """(vertex id, subtask index) of every subtask that begins there, in graph order."""
    newest = max(layout.began, default=0)
    here = [
        slot
        for slot, number in enumerate(layout.slots)
        if layout.participants[number].task_manager_id == task_manager_id and began_in(layout, slot) == newest
    ]
    for vertex in layout.graph.vertices if layout.graph is not None else ():
        yield from ((vertex.id, slot) for slot in here if slot < vertex.parallelism)


def began_in(layout: Layout, slot: int) -> int:
    """The attempt in which the subtasks of a slot began; 0 where all begin in the layout's own."""
    return layout.began[slot] if slot < len(layout.began) else 0


def participant(layout: Layout, subtask: int) -> Participant:
    """The task manager that runs subtask `subtask` of every vertex that has one."""
    return layout.participants[layout.slots[subtask]]
