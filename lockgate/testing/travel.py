"""What a job does with an author's object before it is used: it becomes bytes, and these an object again."""

from __future__ import annotations

from importlib import import_module
from typing import Any, TypeVar

T = TypeVar("T")


def travelled(value: T) -> T:
    """A copy of the object as a task manager would get it. Raises AssertionError when it cannot be pickled."""
    cloudpickle: Any = import_module("pyspark.cloudpickle")  # here, because pyspark is slow to import
    try:
        copy: T = cloudpickle.loads(cloudpickle.dumps(value))
    except Exception as error:
        raise AssertionError(
            f"{type(value).__name__} cannot travel to a task manager: {error}; open files and connections in open()"
        ) from error
    return copy


def require(condition: bool, sentence: str) -> None:
    """Raises AssertionError with the sentence unless the condition holds."""
    if not condition:
        raise AssertionError(sentence)
