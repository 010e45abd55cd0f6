"""RecurringLog: what fails again and again is logged once a minute, with the number of times since."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from lockgate_common.clock import monotonic_ms

EVERY_MS = 60_000
_REMEMBERED = 1_000


@dataclass(slots=True)
class _Topic:
    logged_ms: int
    left_out: int = 0


class RecurringLog:
    """For failures that are tried again while a dependency is away. Thread safe."""

    def __init__(self, now_ms: Callable[[], int] = monotonic_ms) -> None:
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._topics: OrderedDict[str, _Topic] = OrderedDict()

    def warning(self, log: logging.Logger, topic: str, text: str, *arguments: Any, **options: Any) -> None:
        """Logs it, unless this topic was logged within the last minute.

        topic: what fails, and for whom if others fail at their own times; options: `exc_info`, `extra` as in logging.
        """
        self._write(log, logging.WARNING, topic, text, arguments, options)

    def error(self, log: logging.Logger, topic: str, text: str, *arguments: Any, **options: Any) -> None:
        """As `warning`."""
        self._write(log, logging.ERROR, topic, text, arguments, options)

    def info(self, log: logging.Logger, topic: str, text: str, *arguments: Any, **options: Any) -> None:
        """As `warning`."""
        self._write(log, logging.INFO, topic, text, arguments, options)

    def _write(
        self,
        log: logging.Logger,
        level: int,
        topic: str,
        text: str,
        arguments: tuple[Any, ...],
        options: Mapping[str, Any],
    ) -> None:
        left_out = self._left_out(topic)
        if left_out is None:
            return
        if left_out:
            text, arguments = f"{text} (%d more times since the last line)", (*arguments, left_out)
        log.log(level, text, *arguments, stacklevel=3, **options)

    def _left_out(self, topic: str) -> int | None:
        """How many were left out before this one, which is to be logged; None: it is left out as well."""
        now_ms = self._now_ms()
        with self._lock:
            known = self._topics.get(topic)
            if known is not None and now_ms - known.logged_ms < EVERY_MS:
                known.left_out += 1
                return None
            self._topics[topic] = _Topic(now_ms)
            self._topics.move_to_end(topic)
            if len(self._topics) > _REMEMBERED:
                self._topics.popitem(last=False)
            return known.left_out if known is not None else 0
