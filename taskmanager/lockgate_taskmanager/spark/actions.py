"""Refuses Spark actions inside planning functions.

A transform's function is called when the plan is made, on a frame that stands for every batch and holds no records.
`df.isEmpty()` would always be true, `df.count()` always 0, and logic built on them would silently drop records. Actions
on other frames, such as a small lookup table, are allowed.

Most actions are recognized by method name. Others start a Spark job inside another call (`pivot` without values,
`rdd.isEmpty()`, the `fit` of an ML model): such a job fails because it has nothing to read, see `leaf`. Methods that
only keep records (`cache`) do nothing: the next batch would get the records of the first.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from lockgate_taskmanager.spark.leaf import UNREADABLE, DataFrame
from lockgate_taskmanager.spark.session import is_connect
from lockgate_taskmanager.task.program import UserError

_METHODS = (
    "approxQuantile",
    "checkpoint",
    "collect",
    "corr",
    "count",
    "cov",
    "crosstab",
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
_KEEPING = ("cache", "persist")


class _Planning(threading.local):
    """The plan that the thread is making. refused: the first action that was refused."""

    where = ""
    frame: DataFrame | None = None
    refused: UserError | None = None


_planning = _Planning()
_lock = threading.Lock()
_watched: set[type] = set()


@contextmanager
def refused(frame: DataFrame, where: str) -> Iterator[None]:
    """The block is a planning function called with `frame`.

    Raises UserError for an action, even if the function caught it.
    """
    _watch(type(frame))
    _planning.where, _planning.frame, _planning.refused = where, frame, None
    try:
        yield
    except Exception as error:
        if _planning.refused is None and is_unread(error, frame):
            raise _refusal("an action") from error
        raise
    finally:
        _planning.frame, found, _planning.refused = None, _planning.refused, None
        if found is not None:
            raise found


def is_unread(error: Exception, frame: DataFrame) -> bool:
    """Whether a Spark job failed because it read `frame`, or a frame it is made of, while the plan was being made."""
    text = str(error)
    if UNREADABLE in text:
        return True
    return (
        not is_connect(frame)
        and "FILE_NOT_EXIST" in text
        and any(inputFile in text for inputFile in frame.inputFiles())
    )


def _watch(kind: type) -> None:
    """Wraps the methods of a class of frames with the check, once."""
    with _lock:
        if kind in _watched:
            return
        _watched.add(kind)
        for name in _METHODS:
            method = getattr(kind, name, None)
            if method is not None:
                setattr(kind, name, _asking(f"{name}()", method))
        for name in _KEEPING:
            method = getattr(kind, name, None)
            if method is not None:
                setattr(kind, name, _leaving(method))
        for name in _PROPERTIES:
            found = getattr(kind, name, None)
            if isinstance(found, property) and found.fget is not None:
                setattr(kind, name, property(_asking(name, found.fget), doc=found.__doc__))


def _asking(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def refuse(self: DataFrame, *args: Any, **kwargs: Any) -> Any:
        frame = _planning.frame
        if frame is not None and _is_derived(self, frame):
            _planning.refused = _planning.refused or _refusal(name)
            raise _planning.refused
        return method(self, *args, **kwargs)

    return refuse


def _leaving(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps the method: it does nothing for frames derived from the input of a planning function."""

    @functools.wraps(method)
    def left(self: DataFrame, *args: Any, **kwargs: Any) -> Any:
        frame = _planning.frame
        return self if frame is not None and _is_derived(self, frame) else method(self, *args, **kwargs)

    return left


def _refusal(name: str) -> UserError:
    return UserError(
        f"{_planning.where}: the function of a transform makes a plan, on a frame without records, so it cannot"
        f" use {name}: it would see an empty input for every batch. Use column expressions and"
        " filters, pass the values to pivot(), or use foreach_batch, which gets the records"
    )


def _is_derived(found: DataFrame, frame: DataFrame) -> bool:
    """Whether a frame is derived from the other."""
    if is_connect(frame):
        return _holds(found._plan, frame._plan)
    mine, theirs = _leaves(found), _leaves(frame)
    return any(leaf.sameResult(other) for leaf in mine for other in theirs)


def _leaves(frame: DataFrame) -> list[Any]:
    leaves = frame._jdf.queryExecution().analyzed().collectLeaves()
    return [leaves.apply(index) for index in range(leaves.size())]


def _holds(plan: Any, wanted: Any) -> bool:
    """For Spark Connect: a plan is a tree of Python objects."""
    if plan is wanted:
        return True
    parts = [part for var in vars(plan).values() for part in (var if isinstance(var, list | tuple) else (var,))]
    return any(_holds(part, wanted) for part in parts if hasattr(part, "to_proto") and hasattr(part, "__dict__"))
