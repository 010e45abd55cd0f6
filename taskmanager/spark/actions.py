"""Actions in a planning function are refused.

The function of a transform is called when the plan is made, on a frame that stands for every batch and holds no
records. `df.isEmpty()` is then true for ever, `df.count()` is 0, and what is built on that drops records without a
word. Actions on other frames, say a small table that is looked up, are the author's own affair.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from taskmanager.spark.leaf import DataFrame
from taskmanager.spark.session import is_connect
from taskmanager.task.program import UserError

_METHODS = (
    "checkpoint",
    "collect",
    "count",
    "first",
    "foreach",
    "foreachPartition",
    "head",
    "isEmpty",
    "localCheckpoint",
    "show",
    "tail",
    "take",
    "toArrow",
    "toLocalIterator",
    "toPandas",
)
_PROPERTIES = ("write",)


class _Planning(threading.local):
    """What the thread plans. refused: the first action that was."""

    where = ""
    frame: DataFrame | None = None
    refused: UserError | None = None


_planning = _Planning()
_lock = threading.Lock()
_watched: set[type] = set()


@contextmanager
def refused(frame: DataFrame, where: str) -> Iterator[None]:
    """The block is a planning function, called with `frame`. Raises UserError for an action, also a caught one."""
    _watch(type(frame))
    _planning.where, _planning.frame, _planning.refused = where, frame, None
    try:
        yield
    finally:
        _planning.frame, found, _planning.refused = None, _planning.refused, None
        if found is not None:
            raise found


def _watch(kind: type) -> None:
    """Puts the question in front of the methods of a class of frames, once."""
    with _lock:
        if kind in _watched:
            return
        _watched.add(kind)
        for name in _METHODS:
            method = getattr(kind, name, None)
            if method is not None:
                setattr(kind, name, _asking(f"{name}()", method))
        for name in _PROPERTIES:
            found = getattr(kind, name, None)
            if isinstance(found, property) and found.fget is not None:
                setattr(kind, name, property(_asking(name, found.fget), doc=found.__doc__))


def _asking(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def asked(self: DataFrame, *args: Any, **kwargs: Any) -> Any:
        frame = _planning.frame
        if frame is not None and _comes_of(self, frame):
            _planning.refused = _planning.refused or UserError(
                f"{_planning.where}: the function of a transform makes a plan, on a frame without records, so it cannot"
                f" use {name}: its answer would be that of an empty input, for every batch. Say it with columns and"
                " filters, or use foreach_batch, which gets the records"
            )
            raise _planning.refused
        return method(self, *args, **kwargs)

    return asked


def _comes_of(found: DataFrame, frame: DataFrame) -> bool:
    """Whether a frame reads what the other one does."""
    if is_connect(frame):
        return _holds(found._plan, frame._plan)
    mine, theirs = _leaves(found), _leaves(frame)
    return any(one.sameResult(other) for one in mine for other in theirs)


def _leaves(frame: DataFrame) -> list[Any]:
    leaves = frame._jdf.queryExecution().analyzed().collectLeaves()
    return [leaves.apply(index) for index in range(leaves.size())]


def _holds(plan: Any, wanted: Any) -> bool:
    """Of Spark Connect: a plan is a tree of Python objects."""
    if plan is wanted:
        return True
    parts = [part for one in vars(plan).values() for part in (one if isinstance(one, list | tuple) else (one,))]
    return any(_holds(part, wanted) for part in parts if hasattr(part, "to_proto") and hasattr(part, "__dict__"))
