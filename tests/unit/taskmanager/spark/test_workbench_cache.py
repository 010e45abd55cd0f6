"""Which workbench an attempt takes over, whom it waits for, and which ones are closed."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from lockgate_taskmanager.spark.workbench import Workbench, WorkbenchCache

VERTEX, OTHER = ("run", "graph", "count"), ("run", "graph", "read")
FOREVER_S = 60.0  # a test that really waits for so long has failed
WAIT_S = 40.0


class FakeWorkbench(Workbench):
    """Without Spark: notes that it was closed."""

    def __init__(self) -> None:
        super().__init__(session=None, make_leaf=lambda _session, _spec: pytest.fail("no plan is made here"))
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


class Watched(threading.Condition):
    """Tells when a caller waits."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting = threading.Event()

    def wait(self, timeout: float | None = None) -> bool:
        self.waiting.set()
        return super().wait(timeout)


class Shop:
    """A cache and every bench it has made."""

    def __init__(self, runs: int = 4) -> None:
        self.made: list[FakeWorkbench] = []
        self.cache = WorkbenchCache(self._make, runs)
        self.changed = Watched()
        self.cache._changed = self.changed
        self.failure: Exception | None = None

    def _make(self) -> FakeWorkbench:
        if self.failure is not None:
            raise self.failure
        self.made.append(FakeWorkbench())
        return self.made[-1]

    def later(self, key: Any, subtask: int) -> Later:
        """A check-out that waits, on a thread of its own."""
        return Later(self, key, subtask)


class Later:
    def __init__(self, shop: Shop, key: Any, subtask: int) -> None:
        self._found: list[Workbench] = []
        self._thread = threading.Thread(
            target=lambda: self._found.append(shop.cache.check_out(key, subtask, FOREVER_S)), daemon=True
        )
        self._thread.start()
        assert shop.changed.waiting.wait(WAIT_S), "it did not wait"

    def result(self) -> Workbench:
        self._thread.join(WAIT_S)
        assert self._found, "it waits in vain"
        return self._found[0]


def test_a_returned_workbench_is_reused_by_the_next_attempt() -> None:
    shop = Shop()
    workbench = shop.cache.check_out(VERTEX, 0, FOREVER_S)
    shop.cache.check_in(VERTEX, 0, workbench)
    assert shop.cache.check_out(VERTEX, 0, FOREVER_S) is workbench
    assert len(shop.made) == 1


def test_another_subtask_of_the_vertex_gets_an_idle_one() -> None:
    shop = Shop()
    workbench = shop.cache.check_out(VERTEX, 0, FOREVER_S)
    shop.cache.check_in(VERTEX, 0, workbench)
    assert shop.cache.check_out(VERTEX, 3, FOREVER_S) is workbench
    assert len(shop.made) == 1


def test_no_two_callers_get_the_same_one() -> None:
    shop = Shop()
    workbench = shop.cache.check_out(VERTEX, 0, FOREVER_S)
    shop.cache.check_in(VERTEX, 0, workbench)
    taken = [shop.cache.check_out(VERTEX, subtask, FOREVER_S) for subtask in range(3)]
    assert taken == shop.made
    assert len({id(item) for item in taken}) == 3


def test_another_vertex_gets_its_own_workbench() -> None:
    shop = Shop()
    workbench = shop.cache.check_out(VERTEX, 0, FOREVER_S)
    shop.cache.check_in(VERTEX, 0, workbench)
    assert shop.cache.check_out(OTHER, 0, FOREVER_S) is not workbench
    assert shop.cache.check_out(VERTEX, 0, FOREVER_S) is workbench


def test_the_one_used_last_comes_first() -> None:
    shop = Shop()
    first, second = (shop.cache.check_out(VERTEX, subtask, FOREVER_S) for subtask in (0, 1))
    shop.cache.check_in(VERTEX, 1, second)
    shop.cache.check_in(VERTEX, 0, first)
    assert shop.cache.check_out(VERTEX, 5, FOREVER_S) is first
    assert shop.cache.check_out(VERTEX, 6, FOREVER_S) is second


def test_an_attempt_waits_for_the_workbench_of_the_one_before_it() -> None:
    shop = Shop()
    workbench = shop.cache.check_out(VERTEX, 0, FOREVER_S)
    successor = shop.later(VERTEX, 0)
    shop.cache.check_in(VERTEX, 0, workbench)
    assert successor.result() is workbench
    assert len(shop.made) == 1


def test_an_attempt_does_not_wait_for_another_subtask_or_vertex() -> None:
    shop = Shop()
    shop.cache.check_out(VERTEX, 0, FOREVER_S)
    shop.cache.check_out(VERTEX, 1, FOREVER_S)
    shop.cache.check_out(OTHER, 2, FOREVER_S)
    shop.cache.check_out(VERTEX, 2, FOREVER_S)
    assert not shop.changed.waiting.is_set()
    assert len(shop.made) == 4


def test_a_waiting_attempt_takes_the_workbench_that_another_subtask_returns() -> None:
    shop = Shop()
    shop.cache.check_out(VERTEX, 0, FOREVER_S)
    other = shop.cache.check_out(VERTEX, 1, FOREVER_S)
    successor = shop.later(VERTEX, 0)
    shop.cache.check_in(VERTEX, 1, other)
    assert successor.result() is other


def test_when_the_wait_is_over_a_new_one_is_made() -> None:
    shop = Shop()
    workbench = shop.cache.check_out(VERTEX, 0, FOREVER_S)
    assert shop.cache.check_out(VERTEX, 0, 0) is not workbench
    assert shop.cache.check_out(VERTEX, 0, 0.01) is not workbench
    assert len(shop.made) == 3


def test_an_attempt_waits_for_the_last_of_several_that_use_its_place() -> None:
    shop = Shop()
    workbench, warmups = (shop.cache.check_out(VERTEX, 0, 0) for _ in range(2))
    shop.cache.check_in(VERTEX, 0, warmups)
    assert shop.cache.check_out(VERTEX, 7, 0) is warmups  # nothing is idle any more, one still uses place 0
    successor = shop.later(VERTEX, 0)
    shop.cache.check_in(VERTEX, 0, workbench)
    assert successor.result() is workbench


def test_a_failure_to_make_a_workbench_keeps_no_one_waiting() -> None:
    shop = Shop()
    shop.failure = OSError("no space left")
    with pytest.raises(OSError, match="no space left"):
        shop.cache.check_out(VERTEX, 0, FOREVER_S)
    shop.failure = None
    shop.cache.check_out(VERTEX, 0, FOREVER_S)
    assert not shop.changed.waiting.is_set()


def test_beyond_the_limit_the_least_recently_used_run_is_closed() -> None:
    shop = Shop(runs=2)
    keys = [(run, "graph", "count") for run in "abc"]
    workbenches = [shop.cache.check_out(key, 0, 0) for key in keys]
    shop.cache.check_in(keys[0], 0, workbenches[0])
    shop.cache.check_in(keys[1], 0, workbenches[1])
    assert shop.cache.check_out(keys[0], 0, 0) is workbenches[0]
    shop.cache.check_in(keys[0], 0, workbenches[0])  # used after b
    assert not any(input_gate.is_closed for input_gate in shop.made)
    shop.cache.check_in(keys[2], 0, workbenches[2])
    assert [input_gate.is_closed for input_gate in shop.made] == [False, True, False]
    assert shop.cache.check_out(keys[0], 0, 0) is workbenches[0]
    assert shop.cache.check_out(keys[2], 0, 0) is workbenches[2]
    assert shop.cache.check_out(keys[1], 0, 0) not in workbenches


def test_workbenches_in_use_do_not_count_towards_the_limit() -> None:
    shop = Shop(runs=1)
    used = [shop.cache.check_out((run, "graph", "count"), 0, 0) for run in "abc"]
    shop.cache.check_in(VERTEX, 0, shop.cache.check_out(VERTEX, 0, 0))
    assert not any(input_gate.is_closed for input_gate in shop.made)
    shop.cache.check_in(("a", "graph", "count"), 0, used[0])
    assert [input_gate.is_closed for input_gate in shop.made] == [False, False, False, True]


def attempt_in(shop: Shop, run: str, is_warmup: bool = False) -> list[Workbench]:
    """All workbenches of an attempt with five vertices in two slots, each checked out and then given back."""
    places = [((run, "graph", vertex), subtask) for vertex in "abcde" for subtask in range(2)]
    workbenches = [shop.cache.check_out(key, subtask, 0, is_warmup) for key, subtask in places]
    for (key, subtask), workbench in zip(places, workbenches, strict=True):
        shop.cache.check_in(key, subtask, workbench)
    return workbenches


def test_an_attempt_with_many_vertices_finds_every_plan_again() -> None:
    shop = Shop(runs=1)
    before = attempt_in(shop, "run")
    assert {id(workbench) for workbench in attempt_in(shop, "run")} == {id(workbench) for workbench in before}
    assert len(shop.made) == 10


def test_a_run_is_evicted_as_a_whole() -> None:
    shop = Shop(runs=2)
    for run in ("first", "second", "first", "third"):
        attempt_in(shop, run)
    assert [input_gate.is_closed for input_gate in shop.made] == [False] * 10 + [True] * 10 + [False] * 10


def test_warm_ups_evict_each_other_and_never_an_attempts_workbench() -> None:
    shop = Shop(runs=1)
    real = attempt_in(shop, "real")
    warmed = {run: attempt_in(shop, run, is_warmup=True) for run in ("x", "y")}
    closed = [input_gate for input_gate in shop.made if input_gate.is_closed]
    assert {id(item) for item in closed} == {id(item) for item in warmed["x"]}
    attempt_in(shop, "y")  # the attempt that was warmed up for: now it is the real run used last
    assert len(shop.made) == 30
    assert all(isinstance(workbench, FakeWorkbench) and workbench.is_closed for workbench in real)


def test_objects_of_an_attempt_stay_its_own_when_a_warm_up_takes_them() -> None:
    shop = Shop(runs=1)
    attempt_in(shop, "real")
    attempt_in(shop, "real", is_warmup=True)
    attempt_in(shop, "x", is_warmup=True)
    assert len(shop.made) == 20
    assert not any(input_gate.is_closed for input_gate in shop.made)


def test_closing_closes_the_idle_ones_now_and_the_others_when_they_come_back() -> None:
    shop = Shop()
    idle, used = (shop.cache.check_out(VERTEX, subtask, 0) for subtask in (0, 1))
    shop.cache.check_in(VERTEX, 0, idle)
    shop.cache.close()
    assert [input_gate.is_closed for input_gate in shop.made] == [True, False]
    shop.cache.check_in(VERTEX, 1, used)
    assert [input_gate.is_closed for input_gate in shop.made] == [True, True]
    shop.cache.close()  # idempotent
