"""Session: one end of a message exchange that outlives its streams.

When a stream breaks, messages in transit are lost, and neither end knows which. So each end numbers its messages,
reports in every message the highest number that it has handled, and keeps its own messages until the other end has
acknowledged them. On the next stream it resends the rest, and drops messages that it has handled already. Pure.

Numbers rise for the lifetime of the process, across peers. So an end that does not know the peer's term yet never uses
a number twice, and no new message is mistaken for a handled one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

Body = TypeVar("Body")


class Session(Generic[Body]):
    """For one thread at a time. Numbers rise by one; 0 means not numbered."""

    def __init__(self, sent: int = 0) -> None:
        """sent: the number after which this end starts, if the other end knows an earlier session of it."""
        self.handled = 0
        """The highest handled number of the other end: `acknowledged` in every message sent."""
        self._sent = sent
        self._term = 0
        self._kept: deque[tuple[int, Body]] = deque()

    def enter(self, term: int) -> bool:
        """The other end is in this term: messages kept for an earlier one are dropped. True when it is a new one."""
        if term == self._term:
            return False
        self._term = term
        self._kept.clear()
        return True

    def send(self, body: Body) -> int:
        """Keeps the message until it is acknowledged. Returns its number, also when there is no stream now."""
        self._sent += 1
        self._kept.append((self._sent, body))
        return self._sent

    def receive(self, sequence: int, acknowledged: int) -> bool:
        """Whether to handle a message; False for one handled before.

        acknowledged: the peer's acknowledgement of this end.
        """
        while self._kept and self._kept[0][0] <= acknowledged:
            self._kept.popleft()
        if 0 < sequence <= self.handled:
            return False
        self.handled = max(sequence, self.handled)
        return True

    def resume(self, acknowledged: int) -> None:
        """The other end is back on a new stream. acknowledged: its highest handled number.

        If that is more than this end has ever sent, it has counted for an earlier peer, and whatever is kept would be
        taken for handled: it gets higher numbers.
        """
        if acknowledged <= self._sent:
            self.receive(0, acknowledged)
        else:
            self.renumber(acknowledged)

    def renumber(self, acknowledged: int) -> None:
        """The other end is back, and what it has handled was of an earlier peer: whatever is kept is new to it."""
        bodies = [body for _, body in self._kept]
        self._sent = max(self._sent, acknowledged)
        self._kept.clear()
        for body in bodies:
            self.send(body)

    def replace(self, change: Callable[[Body], Body]) -> None:
        """Changes what is kept: a peer that has not received it yet gets the changed one under the same number."""
        self._kept = deque((number, change(body)) for number, body in self._kept)

    def __len__(self) -> int:
        """The number of unacknowledged messages."""
        return len(self._kept)

    def unacknowledged(self) -> tuple[tuple[int, Body], ...]:
        """Number and content of unacknowledged messages, in order: they are sent first on a new stream."""
        return tuple(self._kept)
