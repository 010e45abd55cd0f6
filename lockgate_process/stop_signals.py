"""Stop signals, whichever thread the system hands them to and whatever the main one is blocked in."""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Collection, Iterator
from types import FrameType

_NUMBERS = (signal.SIGTERM, signal.SIGINT)


@contextlib.contextmanager
def stop_signals(tell: Callable[[int], object], numbers: Collection[int] = _NUMBERS) -> Iterator[None]:
    """Within the block each of these signals is told, on a thread of its own; then the former handlers are back.

    To be entered on the main thread. A handler in Python would not do: only the main thread runs one, and when another
    one was interrupted by the signal, the main one does not wake up for it.
    """
    reading, writing = socket.socketpair()
    writing.setblocking(False)
    try:
        former_fd = signal.set_wakeup_fd(writing.fileno(), warn_on_full_buffer=False)
    except ValueError:  # not on the main thread
        reading.close()
        writing.close()
        raise
    former = {number: signal.signal(number, _ignore) for number in numbers}
    listener = threading.Thread(target=_listen, args=(reading, tell, numbers), name="signals", daemon=True)
    listener.start()
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(former_fd)
        writing.close()  # which ends the listener


def _ignore(_number: int, _frame: FrameType | None) -> None:
    """That there is a handler at all has Python write the number to the wakeup descriptor."""


def _listen(reading: socket.socket, tell: Callable[[int], object], wanted: Collection[int]) -> None:
    with reading:
        while numbers := reading.recv(64):
            for number in numbers:
                if number in wanted:
                    tell(number)
