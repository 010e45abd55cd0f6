"""What an author's code stores in its classes and its module belongs to one loaded object, and stays there."""

from __future__ import annotations

from typing import Any

import pytest
from lockgate_proto.messages import Operator
from lockgate_taskmanager.spark.author_classes import AuthorClasses
from lockgate_taskmanager.spark.chain import unpickled
from lockgate_taskmanager.spark.functions.frozen_value import pickled
from pyspark import cloudpickle

_AUTHORS_FILE = """
import abc
import enum
from typing import TypeVar

LIMIT = None
Any = TypeVar("Any")

class Color(enum.Enum):
    RED = 1
    BLUE = 2

class Thing(abc.ABC):
    @abc.abstractmethod
    def is_over(self): ...

class Item(Thing):
    def __init__(self, size):
        self.size, self.color = size, Color.RED
    def is_red(self):
        return self.color is Color.RED
    def is_over(self):
        return self.size > LIMIT

class Score:
    limit = None
    kind = Any
    def __init__(self):
        self.items = []
    def open(self, limit):
        global LIMIT
        LIMIT = Score.limit = limit
    def __call__(self, size):
        self.items.append(Item(size))
        return LIMIT, Score.limit, self.limit
    def about(self):
        return [(isinstance(item, Item), item.is_red(), item.is_over()) for item in self.items]
"""


@pytest.fixture(scope="module")
def function() -> bytes:
    names: dict[str, Any] = {"__name__": "an_authors_file"}  # which cannot be imported here
    exec(_AUTHORS_FILE, names)
    data: bytes = cloudpickle.dumps(names["Score"]())
    return data


def loaded(function: bytes, classes: AuthorClasses | None = None) -> Any:
    return unpickled(function, "operator 'f'", classes)


def test_each_subtask_has_what_its_own_open_has_stored(function: bytes) -> None:
    first, second = loaded(function), loaded(function)
    first.open(1)
    second.open(2)
    assert (first(0), second(0)) == ((1, 1, 1), (2, 2, 2))


def test_loading_the_function_again_resets_nothing(function: bytes) -> None:
    running = loaded(function)
    running.open(1)
    loaded(function)  # as a warm-up does, which opens nothing
    assert running(0) == (1, 1, 1)


def test_restored_objects_are_of_the_classes_of_the_function(function: bytes) -> None:
    before = loaded(function)
    before.open(10)
    before(5)
    state = pickled(before.items, "its state")
    classes = AuthorClasses()
    after = loaded(function, classes)
    after.open(3)
    after.items = classes.loads(state)
    assert after(7) == (3, 3, 3), "the state brought the class as it was when it was stored"
    assert after.about() == [(True, True, True), (True, True, True)]


def test_state_keeps_its_classes_over_a_second_restore(function: bytes) -> None:
    state = b""
    for limit in (10, 3, 1):
        classes = AuthorClasses()
        one_of_three = loaded(function, classes)
        one_of_three.open(limit)
        one_of_three.items = classes.loads(state) if state else []
        one_of_three(5)
        assert {about[:2] for about in one_of_three.about()} == {(True, True)}
        state = pickled(one_of_three.items, "its state")


def test_a_class_that_only_the_state_has_is_made_once_for_all_its_parts() -> None:
    names: dict[str, Any] = {"__name__": "an_authors_file"}
    exec("class Late:\n    made = 0", names)
    parts = [pickled(names["Late"](), "a part") for _ in range(2)]
    classes = AuthorClasses()
    first, second = (classes.loads(part) for part in parts)
    assert type(first) is type(second)
    assert type(first) is not names["Late"]


def test_a_module_that_is_installed_here_is_shared() -> None:
    assert AuthorClasses().loads(cloudpickle.dumps(Operator)) is Operator
