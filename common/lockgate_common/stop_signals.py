"""Stop signals, independent of the thread that receives them and of calls that block the main thread."""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Collection, Iterator
from types import FrameType

_NUMBERS = (signal.SIGTERM, signal.SIGINT)


def without_nohup(numbers: Collection[int]) -> tuple[int, ...]:
    """These signals, but not a SIGHUP that the process was started to ignore, as by `nohup`."""
    is_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return tuple(number for number in numbers if not (is_ignored and number == signal.SIGHUP))


@contextlib.contextmanager
def stop_signals(tell: Callable[[int], object], numbers: Collection[int] = _NUMBERS) -> Iterator[None]:
    """Within the block each of these signals is passed to `tell` on a separate thread; afterwards the former handlers
    are restored. A SIGHUP that is ignored stays so, see `without_nohup`.

    Enter it on the main thread. A Python handler is not sufficient: it runs on the main thread only, and when the
    signal interrupts another thread, the main thread does not wake up.
    """
    numbers = without_nohup(numbers)
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
        writing.close()  # ends the listener


def _ignore(_number: int, _frame: FrameType | None) -> None:
    """Needed so that Python writes the number to the wakeup descriptor."""


def _listen(reading: socket.socket, tell: Callable[[int], object], wanted: Collection[int]) -> None:
    with reading:
        while numbers := reading.recv(64):
            for number in numbers:
                if number in wanted:
                    tell(number)
