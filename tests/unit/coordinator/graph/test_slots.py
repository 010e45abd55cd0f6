"""SlotPool: spread, preference, waiting, loss."""

from __future__ import annotations

import pytest
from lockgate_coordinator.graph.slots import (
    AttemptEnded,
    ReleaseSlots,
    RequestSlots,
    RunningAttempt,
    SlotEffect,
    SlotPool,
    SlotsMissing,
    SlotsOffered,
    TaskManagerAdded,
    TaskManagerEnded,
    TaskManagerRemoved,
    TimePassed,
    WakePool,
    slot_shortage,
)


def pool(**slots: int) -> SlotPool:
    made = SlotPool()
    for name, count in slots.items():
        made.handle(TaskManagerAdded(name, f"{name}:1", count), 0)
    return made


def places(effects: list[SlotEffect]) -> dict[str, list[str]]:
    return {
        effect.job_key: [slot.task_manager_id for slot in effect.slots]
        for effect in effects
        if isinstance(effect, SlotsOffered)
    }


def test_slots_are_spread_evenly() -> None:
    assert places(pool(a=4, b=4).handle(RequestSlots("j", 1, 4), 0)) == {"j": ["a", "b", "a", "b"]}


def test_the_emptier_task_manager_comes_first() -> None:
    cluster = pool(a=2, b=2)
    cluster.handle(RequestSlots("j", 1, 1), 0)
    assert places(cluster.handle(RequestSlots("k", 1, 1), 0)) == {"k": ["b"]}


def test_preferred_places_are_kept_slot_by_slot() -> None:
    request = RequestSlots("j", 1, 3, preferred=("b", "", "b"))
    assert places(pool(a=2, b=2).handle(request, 0)) == {"j": ["b", "a", "b"]}


def test_a_job_that_keeps_its_slots_while_it_waits_loses_none_and_gets_them_again() -> None:
    cluster = pool(a=2, b=2)
    cluster.handle(RequestSlots("j", 1, 4), 0)
    cluster.handle(TaskManagerRemoved("b"), 0)
    assert places(cluster.handle(RequestSlots("j", 2, 4, ("a", "", "a", ""), keeps=(0, 2)), 0)) == {}
    assert places(cluster.handle(RequestSlots("other", 1, 1), 0)) == {}, "its subtasks still run there"
    assert places(cluster.handle(TaskManagerAdded("c", "c:1", 2), 0)) == {"j": ["a", "c", "a", "c"]}


def test_an_heir_where_subtasks_run_on_does_not_take_their_slots() -> None:
    """Standby copies of lost slots 0 and 1 are on b, which has one slot beside those of 2 and 3."""
    cluster = pool(a=3, b=3)
    cluster.handle(RequestSlots("j", 1, 4, ("a", "a", "b", "b")), 0)
    cluster.handle(TaskManagerRemoved("a"), 0)
    cluster.handle(RequestSlots("j", 2, 4, ("b", "b", "b", "b"), keeps=(2, 3)), 0)
    assert places(cluster.handle(TaskManagerAdded("c", "c:1", 3), 0)) == {"j": ["b", "c", "b", "b"]}


def test_a_job_that_runs_in_two_attempts_claims_the_slots_of_both() -> None:
    cluster = pool()
    running = (RunningAttempt("j", 1, 1), RunningAttempt("j", 2, 1))
    cluster.handle(TaskManagerAdded("a", "a:1", 2, running=running), 0)
    assert places(cluster.handle(RequestSlots("other", 1, 1), 0)) == {}
    assert places(cluster.handle(RequestSlots("j", 1, 2, ("a", "a"), running_attempt=2), 0)) == {"j": ["a", "a"]}


def test_a_preferred_place_that_is_full_or_lost_is_replaced() -> None:
    cluster = pool(a=1, b=2)
    cluster.handle(RequestSlots("k", 1, 1, preferred=("a",)), 0)
    assert places(cluster.handle(RequestSlots("j", 1, 2, preferred=("a", "gone")), 0)) == {"j": ["b", "b"]}


def test_a_job_that_has_run_gets_its_slot_back_before_one_that_has_not() -> None:
    cluster = pool(a=2)
    cluster.handle(RequestSlots("runs", 1, 1), 0)
    cluster.handle(RequestSlots("waits", 1, 2), 0)
    cluster.handle(TaskManagerRemoved("a"), 110)
    assert cluster.handle(RequestSlots("runs", 2, 1, preferred=("",)), 120) == [SlotsMissing("runs", 2, 0, 0)]
    back = cluster.handle(TaskManagerAdded("a", "a:1", 2), 230)
    assert places(back) == {"runs": ["a"]}
    assert back[1:] == [SlotsMissing("waits", 1, 1, 1)]


def test_no_new_job_gets_the_slots_for_which_a_job_that_has_run_waits() -> None:
    cluster = SlotPool()
    cluster.handle(RequestSlots("new", 1, 2), 0)
    cluster.handle(RequestSlots("ran", 1, 1, preferred=("b",), grace_ms=500), 0)
    assert cluster.handle(TaskManagerAdded("a", "a:1", 2), 100) == [SlotsMissing("new", 1, 1, 1), WakePool(500)]
    assert places(cluster.handle(TimePassed(), 500)) == {"ran": ["a"]}


def test_the_grace_period_waits_for_preferred_task_managers() -> None:
    cluster = pool(a=2)
    request = RequestSlots("j", 1, 2, preferred=("a", "b"), grace_ms=500)
    assert cluster.handle(request, 100) == [WakePool(600)]
    assert places(cluster.handle(TaskManagerAdded("b", "b:1", 2), 120)) == {"j": ["a", "b"]}


def test_after_the_grace_period_any_free_task_manager_is_used() -> None:
    cluster = pool(a=2)
    cluster.handle(RequestSlots("j", 1, 2, preferred=("a", "b"), grace_ms=500), 100)
    assert not places(cluster.handle(TimePassed(), 599))
    assert places(cluster.handle(TimePassed(), 600)) == {"j": ["a", "a"]}


def test_a_shortage_is_reported_with_numbers_and_again_only_when_they_change() -> None:
    cluster = pool(a=1)
    assert cluster.handle(RequestSlots("j", 1, 3), 0) == [SlotsMissing("j", 1, 1, 1)]
    assert cluster.handle(TimePassed(), 1) == []
    assert cluster.handle(TaskManagerAdded("b", "b:1", 1), 100) == [SlotsMissing("j", 1, 2, 2)]


def test_while_many_task_managers_register_a_shortage_is_reported_a_few_times() -> None:
    cluster = pool(a=1)
    assert cluster.handle(RequestSlots("j", 1, 1_000), 0) == [SlotsMissing("j", 1, 1, 1)]
    for number in range(99):
        assert cluster.handle(TaskManagerAdded(f"b{number}", "b:1", 1), number) == [WakePool(100)]
    assert cluster.handle(TimePassed(), 100) == [SlotsMissing("j", 1, 100, 100)]
    assert cluster.handle(TimePassed(), 150) == []
    assert cluster.handle(TaskManagerAdded("c", "c:1", 1), 150) == [WakePool(200)]
    assert cluster.handle(TaskManagerRemoved("c"), 160) == [], "as it was reported"


def test_a_job_that_is_too_large_blocks_no_other() -> None:
    cluster = pool(a=2)
    cluster.handle(RequestSlots("large", 1, 9), 0)
    assert places(cluster.handle(RequestSlots("small", 1, 2), 0)) == {"small": ["a", "a"]}


def test_waiting_jobs_are_served_in_order_of_arrival() -> None:
    cluster = pool()
    cluster.handle(RequestSlots("first", 1, 1), 0)
    cluster.handle(RequestSlots("second", 1, 1), 0)
    assert places(cluster.handle(TaskManagerAdded("a", "a:1", 1), 0)) == {"first": ["a"]}


def test_released_slots_go_to_waiting_jobs() -> None:
    cluster = pool(a=1)
    cluster.handle(RequestSlots("j", 1, 1), 0)
    cluster.handle(RequestSlots("k", 1, 1), 0)
    assert places(cluster.handle(ReleaseSlots("j"), 0)) == {"k": ["a"]}
    assert cluster.held_by("k") == {"a": 1}


def test_a_new_request_replaces_the_jobs_slots() -> None:
    cluster = pool(a=2)
    cluster.handle(RequestSlots("j", 1, 2), 0)
    assert places(cluster.handle(RequestSlots("j", 2, 2), 0)) == {"j": ["a", "a"]}
    assert cluster.free_slots == 0


def test_a_withdrawn_request_is_forgotten() -> None:
    cluster = pool()
    cluster.handle(RequestSlots("j", 1, 1), 0)
    cluster.handle(ReleaseSlots("j"), 0)
    assert cluster.handle(TaskManagerAdded("a", "a:1", 1), 0) == []


def test_slots_of_a_lost_task_manager_are_removed() -> None:
    cluster = pool(a=2, b=2)
    cluster.handle(RequestSlots("j", 1, 4), 0)
    cluster.handle(TaskManagerRemoved("b"), 0)
    assert [task_manager.task_manager_id for task_manager in cluster.task_managers()] == ["a"]
    assert cluster.free_slots == 0
    cluster.handle(TaskManagerAdded("b", "b:2", 2), 0)
    assert cluster.free_slots == 2


def test_registering_again_keeps_the_used_slots() -> None:
    cluster = pool(a=2)
    cluster.handle(RequestSlots("j", 1, 2), 0)
    cluster.handle(TaskManagerAdded("a", "a:2", 2), 0)
    assert [(task_manager.exchange_address, task_manager.free_slots) for task_manager in cluster.task_managers()] == [
        ("a:2", 0)
    ]


def test_parallelism_above_the_slots_is_a_sentence_with_the_numbers() -> None:
    assert "needs 8 slots" in (slot_shortage(8, [2, 2]) or "")
    assert "has 4 in 2 task managers" in (slot_shortage(8, [2, 2]) or "")
    assert slot_shortage(4, [2, 2]) is None


def test_without_task_managers_nothing_is_too_large_yet() -> None:
    assert slot_shortage(8, []) is None


def test_an_avoided_task_manager_comes_last_but_keeps_subtasks_that_prefer_it() -> None:
    cluster = pool(a=2, b=2, c=1)
    request = RequestSlots("j", 1, 4, preferred=("a",), avoided=("a",))
    assert places(cluster.handle(request, 0)) == {"j": ["a", "b", "c", "b"]}
    assert places(cluster.handle(RequestSlots("k", 1, 1, avoided=("a",)), 0)) == {"k": ["a"]}


def test_slots_without_a_waiting_job_are_spare() -> None:
    cluster = pool(a=2, b=2)
    cluster.handle(RequestSlots("j", 1, 2, preferred=("a", "a")), 0)
    assert [(spare.task_manager_id, spare.slots) for spare in cluster.spares("j")] == [("b", 2)]
    cluster.handle(RequestSlots("huge", 1, 9), 0)
    assert cluster.spares("j"), "it would not fit either if this job gave everything back"
    cluster.handle(RequestSlots("large", 1, 3), 0)
    assert not cluster.spares("j"), "it would take what this job gives back"


def _running(name: str = "a", **attempts: int) -> TaskManagerAdded:
    """A task manager with two slots, which runs these attempts by job, of one slot each."""
    return TaskManagerAdded(
        name, f"{name}:1", 2, running=tuple(RunningAttempt(key, n, 1) for key, n in attempts.items())
    )


def test_slots_of_an_attempt_that_still_runs_go_to_no_other_job_before_its_own_has_asked() -> None:
    """Whoever comes first: a job whose records are read sooner, and which has waited long enough for its own places."""
    cluster = SlotPool()
    cluster.handle(_running(slow=3), 0)
    cluster.handle(RequestSlots("quick", 1, 2, preferred=("gone", "gone"), grace_ms=500), 0)
    assert cluster.handle(TimePassed(), 500) == []
    assert cluster.free_slots == 1
    assert places(cluster.handle(RequestSlots("slow", 1, 1, preferred=("a",), running_attempt=3), 900)) == {
        "slow": ["a"]
    }
    assert cluster.held_by("slow") == {"a": 1}
    assert places(cluster.handle(ReleaseSlots("slow"), 950)) == {"quick": ["a", "a"]}


def test_the_claim_of_an_attempt_that_has_ended_is_over() -> None:
    cluster = SlotPool()
    cluster.handle(_running(slow=3), 0)
    cluster.handle(AttemptEnded("a", "slow", 2), 0)
    cluster.handle(AttemptEnded("b", "slow", 3), 0)
    assert cluster.free_slots == 1, "an older attempt has ended, and one elsewhere"
    cluster.handle(AttemptEnded("a", "slow", 3), 0)
    assert cluster.free_slots == 2
    cluster.handle(_running(slow=3), 0)
    cluster.handle(ReleaseSlots("slow"), 0)
    assert cluster.free_slots == 2


def test_a_job_that_holds_slots_has_no_claim_to_others() -> None:
    """Its earlier attempt is reported by a task manager that was away: it is being cancelled there."""
    cluster = pool(b=1)
    cluster.handle(RequestSlots("j", 1, 1), 0)
    cluster.handle(_running(j=3), 0)
    assert cluster.free_slots == 2


@pytest.mark.parametrize(("found", "until_ms"), [({"j": 3}, 2_000), ({"j": 4}, 500), ({"other": 3}, 500), ({}, 500)])
def test_a_job_waits_longer_for_its_task_managers_only_while_its_attempt_may_go_on(
    found: dict[str, int], until_ms: int
) -> None:
    cluster = pool(c=4)
    wanted = RequestSlots("j", 1, 2, ("a", "b"), grace_ms=500, running_attempt=3, running_grace_ms=2_000)
    cluster.handle(wanted, 0)
    assert cluster.handle(_running(**found), 0) == [WakePool(until_ms)]
    assert not places(cluster.handle(TimePassed(), until_ms - 1))
    assert places(cluster.handle(TimePassed(), until_ms)) == {"j": ["a", "c"]}


@pytest.mark.parametrize(("number", "until_ms"), [(1, 500), (2, 2_000), (3, 2_000), (4, 500)])
def test_an_attempt_may_go_on_where_a_part_of_it_began_earlier(number: int, until_ms: int) -> None:
    cluster = pool(c=4)
    running = {"running_attempt": 3, "running_grace_ms": 2_000, "running_since": 2}
    cluster.handle(RequestSlots("j", 1, 2, ("a", "b"), grace_ms=500, **running), 0)
    assert cluster.handle(_running(j=number), 0) == [WakePool(until_ms)]


def test_a_job_waits_for_the_rest_of_its_task_managers_as_long_as_they_come() -> None:
    """The last comes long after the first, and none is later than the grace behind the one before."""
    names = tuple("abcd")
    cluster = pool(spare=4)
    cluster.handle(RequestSlots("j", 1, 4, names, 500, running_attempt=3, running_grace_ms=2_000), 0)
    for number, name in enumerate(names):
        now_ms = 1_900 * (number + 1)
        assert not places(cluster.handle(TimePassed(), now_ms - 1))
        found = cluster.handle(_running(name, j=3), now_ms)
    assert places(found) == {"j": list(names)}


def test_a_job_stops_waiting_when_none_of_its_task_managers_has_come_for_the_grace() -> None:
    """One that registers again is not one more."""
    cluster = pool(c=4)
    cluster.handle(RequestSlots("j", 1, 2, ("a", "b"), grace_ms=500, running_attempt=3, running_grace_ms=2_000), 0)
    assert cluster.handle(_running(j=3), 1_500) == [WakePool(3_500)]
    assert cluster.handle(_running(j=3), 3_000) == [WakePool(3_500)]
    assert cluster.handle(TaskManagerAdded("d", "d:1", 1), 3_100) == [WakePool(3_500)]
    assert places(cluster.handle(TimePassed(), 3_500)) == {"j": ["a", "c"]}


def test_a_job_does_not_wait_longer_once_its_attempt_has_ended_on_one_of_them() -> None:
    cluster = pool(c=4)
    cluster.handle(_running(j=3), 0)
    cluster.handle(RequestSlots("j", 1, 2, ("a", "b"), grace_ms=500, running_attempt=3, running_grace_ms=2_000), 0)
    assert places(cluster.handle(AttemptEnded("a", "j", 3), 700)) == {"j": ["a", "c"]}


def test_a_job_does_not_wait_longer_once_one_of_them_has_been_lost() -> None:
    cluster = pool(c=4)
    cluster.handle(_running(j=3), 0)
    cluster.handle(RequestSlots("j", 1, 2, ("a", "b"), grace_ms=500, running_attempt=3, running_grace_ms=2_000), 0)
    assert cluster.handle(TaskManagerRemoved("b"), 100) == [WakePool(500)]


def test_a_job_does_not_wait_at_all_for_a_task_manager_whose_process_has_ended() -> None:
    cluster = pool(c=4)
    cluster.handle(_running(j=3), 0)
    cluster.handle(RequestSlots("j", 1, 2, ("a", "b"), grace_ms=500, running_attempt=3, running_grace_ms=2_000), 0)
    assert cluster.awaits("b", 10)
    assert places(cluster.handle(TaskManagerEnded("b"), 20)) == {"j": ["a", "c"]}
    assert not cluster.awaits("b", 20)


def test_a_job_goes_on_waiting_for_others_that_have_not_ended_but_not_for_its_attempt() -> None:
    cluster = pool(c=4)
    cluster.handle(RequestSlots("j", 1, 2, ("a", "b"), grace_ms=500, running_attempt=3, running_grace_ms=2_000), 0)
    assert cluster.handle(TaskManagerEnded("b"), 20) == [WakePool(500)]
    assert cluster.awaits("a", 20)
    assert places(cluster.handle(_running(j=3), 100)) == {"j": ["a", "c"]}


def test_the_end_of_an_earlier_process_says_nothing_about_one_that_is_registered() -> None:
    cluster = pool(c=4)
    cluster.handle(_running(j=3), 0)
    cluster.handle(RequestSlots("j", 1, 2, ("a", "b"), grace_ms=500, running_attempt=3, running_grace_ms=2_000), 0)
    assert not cluster.awaits("a", 0)
    assert cluster.handle(TaskManagerEnded("a"), 20) == [WakePool(2_000)]


def test_the_next_request_waits_again_for_a_task_manager_that_had_ended() -> None:
    """Its supervisor may have started it again: evidence is for those who wait when it is found."""
    cluster = pool(c=4)
    wanted = RequestSlots("j", 1, 1, ("b",), grace_ms=500)
    cluster.handle(wanted, 0)
    assert places(cluster.handle(TaskManagerEnded("b"), 20)) == {"j": ["c"]}
    cluster.handle(wanted, 30)
    assert cluster.awaits("b", 30)
    assert not cluster.awaits("b", 530)
