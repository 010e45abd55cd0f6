"""A share of the examples: as many are drawn as it says."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import share
from tests.share import DAY, SHARE, draw_fewer_examples, of_today, other_days, other_parameters


def test_a_share_of_the_examples_is_drawn_for_every_occurrence_of_the_test() -> None:
    drawn = []

    @settings(max_examples=40)
    @given(st.integers())
    def example(number: int) -> None:
        drawn.append(number)

    items: Any = [SimpleNamespace(obj=example), SimpleNamespace(obj=example), SimpleNamespace(obj=print)]
    draw_fewer_examples(cast(list[pytest.Item], items), 10)
    example()
    assert len(drawn) == 4


def test_of_files_that_take_turns_each_is_run_on_one_day(monkeypatch: pytest.MonkeyPatch) -> None:
    tests = (("a", "1", True), ("a", "2", True), ("b", "3", True), ("c", "4", False), ("d", "5", True))
    items: Any = [_item(f"{file}.py::{name}", name, of_file=is_marked) for file, name, is_marked in tests]
    assert other_days(items, 1) == []
    assert _runs_of(items, 3, monkeypatch) == [["1", "2", "3", "5"], ["4"] * 3]
    for day in range(DAY, DAY + 3):
        monkeypatch.setattr("tests.share.DAY", day)
        left = {item.name for item in other_days(items, 3)}
        assert len(left & {"1", "2"}) != 1, "a file takes its turn as a whole"
        assert {item.name for item in other_days(items[1:], 3)} == left - {"1"}, "whatever else there is"


def test_a_single_test_takes_its_turn_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    rotating = ("a.py::x[1]", "a.py::x[2]", "a.py::y")
    items: Any = [*(_item(name, name, of_itself=True) for name in rotating), _item("a.py::z", "a.py::z")]
    assert _runs_of(items, 30, monkeypatch) == [sorted(rotating), ["a.py::z"] * 30]
    for day in range(DAY, DAY + 30):
        monkeypatch.setattr("tests.share.DAY", day)
        left = {item.name for item in other_days(items, 30)}
        assert len(left & {"a.py::x[1]", "a.py::x[2]"}) != 1, "with all sets of its parameters"
    assert share._turn_of(items[0]) != share._turn_of(items[2])


def _runs_of(items: list[Any], shares: int, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """In so many days in a row: what has run on one of them, and what on all, once for each day."""
    run: list[str] = []
    for day in range(DAY, DAY + shares):
        monkeypatch.setattr("tests.share.DAY", day)
        left = {item.name for item in other_days(items, shares)}
        run += [item.name for item in items if item.name not in left]
    return [sorted(name for name in run if run.count(name) == 1), [name for name in run if run.count(name) > 1]]


def _item(nodeid: str, name: str, of_file: bool = False, of_itself: bool = False) -> object:
    marks = [pytest.mark.rotating.mark] if of_itself else []

    class Item(SimpleNamespace):
        __hash__ = object.__hash__

        def get_closest_marker(self, _name: str) -> bool:
            return of_file or of_itself

    return Item(nodeid=nodeid, name=name, own_markers=marks)


def test_of_many_parameters_some_are_run_each_day(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [*(f"t.py::many[{number}]" for number in range(10)), "t.py::few[0]", "t.py::few[1]", "t.py::none"]
    items: Any = [SimpleNamespace(nodeid=name) for name in names]
    assert other_parameters(items, 0) == []
    run = []
    for day in range(DAY, DAY + 5 * SHARE, SHARE):  # when a file that takes turns has its own again
        monkeypatch.setattr("tests.share.DAY", day)
        left = other_parameters(items, 2)
        assert len(left) == 8
        run += [item.nodeid for item in items if item not in left]
    assert sorted(run) == sorted([*names[:10], *5 * names[10:]])


def test_three_days_see_every_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[int] = []
    for day in range(DAY, DAY + 3):
        monkeypatch.setattr("tests.share.DAY", day)
        found += of_today(range(10), 3)
    assert sorted(found) == list(range(10))
