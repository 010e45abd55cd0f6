"""Who is moved, where to, and who is left alone."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from lockgate_coordinator.job.stragglers import AVOID_MS

from tests.unit.coordinator.testing_stragglers import OPTION, TestingStragglers, spare

WINDOW_MS = OPTION.window_ms


def test_a_subtask_on_a_slow_task_manager_is_moved_to_the_free_slot_and_the_others_stay() -> None:
    stragglers = TestingStragglers(["a", "b", "c"], speed={"b": 4.0})
    stragglers.pass_ms(WINDOW_MS * 3)
    (_, found), *more = stragglers.moved
    assert not more
    assert (found.slots, found.source, found.target, found.places) == ((1,), "b", "spare", ("a", "spare", "c"))
    assert found.text == (
        "subtask 1 of 'count' takes 4.0 times as long per record as its siblings; moved from b (b:1) to spare (spare:1)"
    )


def test_nothing_is_moved_before_it_was_slow_for_the_whole_window() -> None:
    stragglers = TestingStragglers(["a", "b", "c"], speed={"b": 4.0})
    stragglers.pass_ms(WINDOW_MS - 1_000)
    assert not stragglers.moved
    stragglers.speed["b"] = 1.0  # it was but a spell
    stragglers.pass_ms(WINDOW_MS)
    stragglers.speed["b"] = 4.0
    stragglers.pass_ms(WINDOW_MS - 1_000)
    assert not stragglers.moved


@pytest.mark.parametrize(
    ("why", "stragglers"),
    [
        ("not slow enough", {"speed": {"b": 2.5}}),
        ("a hot key", {"load": {1: 200_000}}),
        ("next to nothing to do", {"load": {1: 10}}),
        ("idle", {"load": {1: 0}, "speed": {"b": 9.0}}),
        ("all siblings idle", {"load": {0: 0, 2: 0}, "speed": {"b": 9.0}}),
        ("it keeps up, or is held up by others", {"speed": {"b": 4.0}, "share": {1: 0.3}}),
        ("all alike", {"speed": {"a": 4.0, "b": 4.0, "c": 4.0}}),
        ("without siblings", {"places": ["b"], "speed": {"b": 9.0}}),
        ("without siblings elsewhere", {"places": ["b", "b", "b"], "cost": {1: 9.0}}),
        ("its neighbour is quick, so it is the data", {"places": ["a", "b", "b"], "cost": {1: 9.0}}),
    ],
)
def test_subtasks_that_are_no_stragglers_stay(why: str, stragglers: dict[str, Any]) -> None:
    found = TestingStragglers(**{"places": ["a", "b", "c"], **stragglers})
    found.pass_ms(WINDOW_MS * 5)
    assert not found.moved, why
    assert not found.messages, why


def test_all_slow_slots_of_a_task_manager_are_moved_at_once_if_there_is_room() -> None:
    stragglers = TestingStragglers(["a", "b", "b", "c", "c"], speed={"b": 4.0}, spares=[spare("one"), spare("two", 2)])
    stragglers.pass_ms(WINDOW_MS * 2)
    assert [found.places for _, found in stragglers.moved] == [("a", "two", "two", "c", "c")]
    assert stragglers.moved[0][1].text.startswith("subtasks 1 and 2 of 'count' take 4.0 times as long")


def test_a_missing_slot_elsewhere_is_reported_once() -> None:
    for spares in ((), (spare("b", 2),), (spare("x", 0),)):
        stragglers = TestingStragglers(["a", "b", "c"], speed={"b": 4.0}, spares=spares)
        stragglers.pass_ms(WINDOW_MS * 5)
        assert not stragglers.moved
        assert stragglers.messages == [
            "subtask 1 of 'count' takes 4.0 times as long per record as its siblings on b (b:1), and stays: there is "
            "no free slot for it elsewhere"
        ]


def test_a_subtask_that_is_slow_wherever_it_runs_is_moved_once_and_then_stays() -> None:
    stragglers = TestingStragglers(["a", "b", "c"], cost={1: 5.0}, spares=[spare("x"), spare("y"), spare("z")])
    stragglers.pass_ms(OPTION.pause_ms * 30)
    assert len(stragglers.moved) == 1
    assert stragglers.messages == [
        "subtask 1 of 'count' takes 5.0 times as long per record as its siblings on x as it did on b: the work is "
        "slow, not the place, so it stays"
    ]


def test_between_moves_there_is_a_pause_that_doubles_and_no_place_is_used_again_for_a_while() -> None:
    stragglers = TestingStragglers(["a", "b", "c"], speed={"b": 4.0}, spares=[spare(name) for name in "uvwxyz"])
    for _ in range(5):
        stragglers.pass_ms(OPTION.pause_ms * 20)
        stragglers.speed[stragglers.places[1]] = 4.0  # whichever place it has now becomes slow in time
    times = [at for at, _ in stragglers.moved]
    assert len(times) == 5
    for count, (earlier, later) in enumerate(itertools.pairwise(times)):
        assert later - earlier >= OPTION.pause_ms << count
    left = [found.source for _, found in stragglers.moved]
    assert len(set(left)) == len(left)
    assert "b" in stragglers.watch.avoided(times[0] + AVOID_MS - 1)
    assert "b" not in stragglers.watch.avoided(times[0] + AVOID_MS)


def test_a_restarted_task_manager_is_no_longer_avoided() -> None:
    stragglers = TestingStragglers(["a", "b", "c"], speed={"b": 4.0})
    stragglers.pass_ms(WINDOW_MS * 2)
    assert stragglers.watch.avoided(stragglers.now) == ("b",)
    stragglers.watch.lost("b")
    assert stragglers.watch.avoided(stragglers.now) == ()


def test_a_move_that_could_not_be_made_at_the_moment_is_made_later() -> None:
    answers = iter([False, False, True])
    stragglers = TestingStragglers(["a", "b", "c"], speed={"b": 4.0}, may_move=lambda: next(answers, False))
    stragglers.pass_ms(WINDOW_MS * 2)
    assert len(stragglers.moved) == 1


def test_a_new_leader_waits_and_knows_the_move_on_trial_and_the_avoided_places() -> None:
    stragglers = TestingStragglers(["a", "b", "c"], cost={1: 5.0}, spares=[spare("x"), spare("y")])
    stragglers.pass_ms(WINDOW_MS + 2_000)
    assert len(stragglers.moved) == 1
    stragglers.new_leader()
    assert stragglers.watch.avoided(stragglers.now) == ("b",)
    stragglers.pass_ms(OPTION.pause_ms * 5)
    assert len(stragglers.moved) == 1
    assert "so it stays" in stragglers.messages[0]


def test_a_slot_that_was_placed_elsewhere_by_a_failure_is_on_trial_no_more() -> None:
    stragglers = TestingStragglers(["a", "b", "c"], speed={"b": 4.0}, spares=[spare("x")])
    stragglers.pass_ms(WINDOW_MS * 2)
    stragglers.places[1] = "slow"  # x was lost
    stragglers.speed["slow"] = 5.0
    stragglers.spares = [spare("y")]
    stragglers.start()
    stragglers.pass_ms(OPTION.pause_ms * 3)
    assert [found.target for _, found in stragglers.moved] == ["x", "y"]


def test_a_move_that_is_impossible_is_not_tried_again() -> None:
    stragglers = TestingStragglers(["a", "b", "c"], speed={"b": 4.0}, may_move=lambda: False)
    stragglers.pass_ms(WINDOW_MS + 1_000)
    found = stragglers.watch.look(stragglers.spares, stragglers.now)
    text = stragglers.watch.impossible(found, "it is too large.").text  # type: ignore[arg-type]
    assert text == "a slow subtask stays on b: it is too large."
    stragglers.pass_ms(WINDOW_MS)
    assert stragglers.watch.look(stragglers.spares, stragglers.now) is None


def test_at_another_parallelism_no_slot_is_on_trial_or_given_up() -> None:
    stragglers = TestingStragglers(["a", "b", "c"], cost={1: 5.0}, spares=[spare("x"), spare("y")])
    stragglers.pass_ms(OPTION.pause_ms * 3)
    assert len(stragglers.messages) == 1
    stragglers.places = [*stragglers.places, "d"]
    stragglers.start()
    stragglers.pass_ms(WINDOW_MS * 2)
    assert [found.target for _, found in stragglers.moved] == ["x", "y"]
