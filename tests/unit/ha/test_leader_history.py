"""Who led when, as far as it is recorded."""

from __future__ import annotations

from lockgate_ha.leader_history import MOST_LEADERS, with_leader
from lockgate_proto.messages import LeadershipRecord


def _leader(token: int, ended_unix_us: int = 0) -> LeadershipRecord:
    return LeadershipRecord(token, f"c-{token}", f"host:{token}", token * 1_000, ended_unix_us)


def test_the_one_before_ended_when_its_loss_was_noticed_or_else_with_the_grant() -> None:
    first = with_leader((), _leader(1), None)
    assert first == (_leader(1),)
    assert with_leader(first, _leader(2), 1_900) == (_leader(1, 1_900), _leader(2))
    assert with_leader(first, _leader(2), None) == (_leader(1, 2_000), _leader(2))


def test_written_again_it_is_the_same() -> None:
    once = with_leader((_leader(1),), _leader(2), 1_900)
    assert with_leader(once, _leader(2), 1_900) == once


def test_a_gap_says_nothing_about_the_one_before_it() -> None:
    assert with_leader((_leader(1),), _leader(3), 2_900) == (_leader(1), _leader(3))


def test_it_is_bounded() -> None:
    known: tuple[LeadershipRecord, ...] = ()
    for token in range(1, 100):
        known = with_leader(known, _leader(token), None)
    assert [record.token for record in known] == list(range(100 - MOST_LEADERS, 100))
