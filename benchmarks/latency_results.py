"""The results of a run as they leave: lines of numbers in logs and files, each with the time of its arrival."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType

from benchmarks.latency_figures import Seen

_LOOK_EVERY_S = 0.001
_NUMBERS = re.compile(rb"^\s*\d+(\s+\d+)*\s*$")
_WINDOW = re.compile(rb"^\s*(\d+)\s+\d+-\S+ \S+\s+(\d+-\S+ \S+)\s+(\d+)\s*$")


class Printed:
    """Follows files in which a `print()` sink shows rows, while it is entered; then `seen` has all of them."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._files = tuple(files)
        self._found: list[tuple[float, bytes]] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="results", daemon=True)
        self.seen: Seen = ()

    def __enter__(self) -> Printed:
        self._starts = [file.stat().st_size for file in self._files]
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._thread.join()
        self.seen = [(at, numbers) for at, line in self._found if (numbers := numbers_of(line))]

    def _follow(self) -> None:
        opened = [file.open("rb") for file in self._files]
        rests = [b""] * len(opened)
        for file, start in zip(opened, self._starts, strict=True):
            file.seek(start)
        while True:
            is_last = self._is_over.is_set()
            for number, file in enumerate(opened):
                if data := file.read():
                    now = time.time()
                    *lines, rests[number] = (rests[number] + data).split(b"\n")
                    self._found += [(now, line) for line in lines]
            if is_last:
                break
            time.sleep(_LOOK_EVERY_S)
        for file in opened:
            file.close()


def numbers_of(line: bytes) -> tuple[int, ...]:
    """A printed row of whole numbers, or of a window, whose end is then in milliseconds; empty for another line."""
    if _NUMBERS.match(line):
        return tuple(map(int, line.split()))
    if found := _WINDOW.match(line):
        end = datetime.fromisoformat(found[2].decode())
        return int(found[1]), round(end.timestamp() * 1000), int(found[3])
    return ()


def printed(file: Path) -> Seen:
    """Results that were written with their times in front, see `benchmarks.latency_peer`."""
    lines = (line.split() for line in file.read_text(encoding="utf-8").splitlines())
    return [(float(at), tuple(map(int, numbers))) for at, *numbers in lines]
