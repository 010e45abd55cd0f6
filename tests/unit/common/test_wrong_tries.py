"""Wrong credentials: how late each is answered, and that it is the matter of its address alone."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from lockgate_common.serving import wrong_tries
from lockgate_common.serving.refusals import TooMuch
from lockgate_common.serving.wrong_tries import WrongTries


def delay(tries: WrongTries, address: str, now_s: float) -> float:
    with tries.one(address, now_s) as delay_s:
        return delay_s


def test_each_is_answered_later_than_the_one_before_up_to_a_bound() -> None:
    tries = WrongTries()
    assert [delay(tries, "a", 100.0) for _ in range(7)] == [0.3, 0.6, 1.2, 2.4, 4.8, 5.0, 5.0]
    for _ in range(2_000):
        assert delay(tries, "a", 100.0) == 5.0
    assert delay(tries, "b", 100.0) == 0.3


def test_a_few_wrong_proofs_may_be_for_the_process_before() -> None:
    tries = WrongTries()
    found = [tries.is_stale("a", 100.0) for _ in range(30)]
    assert found == [True] * 20 + [False] * 10
    assert tries.is_stale("b", 100.0)
    assert not tries.is_stale("a", 160.0)
    assert tries.is_stale("a", 220.1)
    assert delay(tries, "a", 220.1) == 0.3, "those few count as no wrong try"


def test_it_is_forgotten_in_time() -> None:
    tries = WrongTries()
    assert [delay(tries, "a", now_s) for now_s in (100.0, 160.0, 220.0, 280.1)] == [0.3, 0.6, 1.2, 0.3]


def test_waiting_calls_are_bounded_and_the_address_gets_a_retry_time() -> None:
    tries = WrongTries()
    with ExitStack() as waiting:
        for _ in range(49):
            waiting.enter_context(tries.one("a", 100.0))
        tries.check("a")
        waiting.enter_context(tries.one("a", 100.0))
        with pytest.raises(TooMuch, match=r"too many wrong credentials from this address; try again in 5\.0 s"):
            tries.check("a")
        tries.check("b")
    tries.check("a")


def test_however_many_wait_other_addresses_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wrong_tries, "_WAITING", 3)
    tries = WrongTries()
    with tries.one("a", 1.0), tries.one("b", 1.0), tries.one("c", 1.0):
        tries.check("d")
        assert delay(tries, "d", 1.0) == 0.0
    assert delay(tries, "e", 1.0) == 0.3


def test_remembered_addresses_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wrong_tries, "_KEPT", 3)
    tries = WrongTries()
    with tries.one("a", 1.0):
        for address in ("b", "c", "d", "e"):
            delay(tries, address, 1.0)
        assert list(tries._addresses) == ["c", "d", "e"]
    assert [delay(tries, "e", 1.0), delay(tries, "a", 1.0)] == [0.6, 0.3]
    assert list(tries._addresses) == ["d", "e", "a"]
