"""What the elements of a channel are to the barrier machines."""

from __future__ import annotations

from lockgate_proto.messages import Barrier, EndOfInput

from taskmanager.barrier.events import BarrierArrived, ElementArrived, Event, InputEnded
from taskmanager.exchange.elements import Element


def barrier_event(channel: int, element: Element) -> Event:
    """The event of an element that has arrived on an input channel, counted from 0."""
    if isinstance(element, Barrier):
        return BarrierArrived(channel, element)
    if isinstance(element, EndOfInput):
        return InputEnded(channel)
    return ElementArrived(channel, element)
