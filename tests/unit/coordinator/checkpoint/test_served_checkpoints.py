"""Queries are served from the newest checkpoint that is open, never go back, and lag behind by a bound at most."""

from __future__ import annotations

import random

from lockgate_coordinator.checkpoint.served import BEHIND_MS, LATELY_MS, Opening, ServedCheckpoints
from lockgate_proto.messages import CompletedCheckpoint


def checkpoint(number: int) -> CompletedCheckpoint:
    return CompletedCheckpoint(number, f"file:///chk-{number}/_metadata", f"sha256:{number}")


class Served:
    """One job's, with a clock that is set by hand."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.newest = 0
        self.machine = ServedCheckpoints()

    def complete(self, number: int) -> Opening | None:
        self.newest = number
        self.machine.completed(checkpoint(number), self.now_ms)
        return self.machine.next_opening(self.now_ms)

    def ask(self, *operators: str, read: int = 0) -> int:
        """read: the newest checkpoint when the query read it; 0: still the newest."""
        newest = checkpoint(read or self.newest)
        found = self.machine.choose(newest, operators or ("a",), self.now_ms).checkpoint_id
        assert found >= self.machine._floor
        return found

    def open_next(self) -> tuple[int, tuple[str, ...]]:
        opening = self.machine.next_opening(self.now_ms)
        assert opening is not None
        self.machine.opened()
        return opening.checkpoint.checkpoint_id, opening.operators


def warm() -> Served:
    """Checkpoint 7 is open and answers."""
    served = Served()
    served.complete(7)
    assert [served.ask(), served.ask()] == [7, 7]
    assert served.open_next() == (7, ("a",))
    return served


def test_nothing_is_opened_for_a_single_query() -> None:
    served = Served()
    served.complete(7)
    assert served.ask() == 7
    assert served.complete(8) is None
    served.now_ms = LATELY_MS + 1
    assert served.ask() == 8
    assert served.machine.next_opening(served.now_ms) is None
    assert served.ask() == 8
    assert served.open_next() == (8, ("a",))


def test_the_checkpoint_before_answers_until_the_new_one_is_open() -> None:
    served = warm()
    assert served.complete(8) == Opening(checkpoint(8), ("a",))
    assert served.ask() == 7
    served.machine.opened()
    assert served.ask() == 8
    assert served.machine.next_opening(served.now_ms) is None


def test_one_is_opened_at_a_time_and_then_the_newest() -> None:
    served = warm()
    served.complete(8)
    assert [served.complete(9), served.complete(10)] == [None, None]
    served.machine.opened()
    assert served.ask() == 8
    assert served.open_next() == (10, ("a",))
    assert served.ask() == 10


def test_queries_wait_for_what_is_being_opened_before_anything_is() -> None:
    served = Served()
    served.complete(7)
    served.ask()
    served.ask()
    assert served.machine.next_opening(0) == Opening(checkpoint(7), ("a",))
    served.complete(8)
    assert served.ask() == 7
    served.machine.opened()
    assert served.ask() == 7


def test_an_answer_is_behind_by_a_bound_at_most() -> None:
    served = warm()
    served.complete(8)
    served.now_ms = BEHIND_MS
    served.complete(9)
    assert served.ask() == 7
    served.now_ms += 1
    assert served.ask() == 8  # which is being opened, and of which the newer one is new
    served.now_ms = 2 * BEHIND_MS + 1
    assert served.ask() == 9


def test_answers_do_not_go_back_to_one_that_is_opened_late() -> None:
    served = warm()
    served.complete(8)
    served.machine.failed()
    served.complete(9)
    served.now_ms = BEHIND_MS + 1
    served.complete(10)
    assert served.ask() == 9
    served.now_ms += BEHIND_MS
    served.complete(11)
    served.now_ms += 1
    assert served.ask() == 11
    served.machine.opened()  # 9
    assert served.ask() == 11


def test_one_that_cannot_be_opened_is_not_tried_again() -> None:
    served = warm()
    served.complete(8)
    served.machine.failed()
    assert served.machine.next_opening(served.now_ms) is None
    assert served.ask() == 7
    assert served.complete(9) == Opening(checkpoint(9), ("a",))


def test_a_deleted_one_answers_no_more() -> None:
    served = warm()
    served.complete(8)
    assert served.ask() == 7
    served.machine.lost(checkpoint(7))
    assert served.ask() == 8


def test_a_query_that_is_late_is_not_answered_from_the_past() -> None:
    served = warm()
    served.complete(8)
    served.machine.lost(checkpoint(7))
    assert served.ask(read=7) == 8
    served.complete(9)
    assert served.ask("b", read=8) == 9
    assert served.ask("c", read=7) == 9


def test_the_newest_answers_even_if_a_file_of_it_was_missing() -> None:
    served = warm()
    served.machine.lost(checkpoint(7))
    assert served.ask() == 7
    served.complete(8)
    assert served.ask() == 8


def test_an_operator_that_is_not_open_is_read_from_the_newest_and_then_opened_too() -> None:
    served = warm()
    served.complete(8)
    assert served.ask("a", "b") == 8
    served.machine.opened()
    assert served.ask() == 8
    assert served.open_next() == (8, ("a", "b"))
    served.complete(9)
    assert served.ask("b") == 8


def test_what_nobody_asks_for_any_more_is_not_opened() -> None:
    served = warm()
    served.ask("b")
    served.open_next()
    served.now_ms = LATELY_MS + 1
    assert served.machine.is_over(served.now_ms)
    assert served.complete(8) is None
    served.now_ms += BEHIND_MS + 1
    assert served.ask() == 8
    assert served.ask() == 8
    assert served.open_next() == (8, ("a",))


def test_no_order_of_events_takes_answers_back_or_beyond_the_bound() -> None:
    for seed in range(300):
        chance, served = random.Random(seed), Served()
        completed_ms, answers, is_opening = {1: 0}, [0], False
        served.complete(1)
        for _ in range(200):
            served.now_ms += chance.choice((0, 10, 700, 2_000))
            what = chance.randrange(6)
            if what == 0:
                is_opening |= served.complete(served.newest + 1) is not None
                completed_ms[served.newest] = served.now_ms
            elif what == 1 and is_opening:
                chance.choice((served.machine.opened, served.machine.failed))()
                is_opening = False
            elif what == 2:
                served.machine.lost(checkpoint(answers[-1]))
            else:
                read = max(1, served.newest - chance.choice((0, 0, 1, 2)))
                answers.append(served.ask(chance.choice("ab"), read=read))
                after = completed_ms.get(answers[-1] + 1)
                assert after is None or served.now_ms - after <= BEHIND_MS
            is_opening |= served.machine.next_opening(served.now_ms) is not None
        assert answers == sorted(answers)
