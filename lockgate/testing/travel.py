"""Pickles and unpickles an author's object, as a job does before it is used."""

from __future__ import annotations

from importlib import import_module
from typing import Any, TypeVar

T = TypeVar("T")


def pickled_copy(value: T) -> T:
    """A copy of the object as a task manager would get it. Raises AssertionError when it cannot be pickled."""
    cloudpickle: Any = import_module("pyspark.cloudpickle")  # imported here, because pyspark is slow to import
    try:
        copy: T = cloudpickle.loads(cloudpickle.dumps(value))
    except Exception as error:
        raise AssertionError(
            f"{type(value).__name__} cannot be sent to a task manager: {error}; open files and connections in open()"
        ) from error
    return copy


def require(condition: bool, sentence: str) -> None:
    """Raises AssertionError with the sentence unless the condition holds."""
    if not condition:
        raise AssertionError(sentence)
