"""What a process remembers of a job: ids, causes, bounds."""

from __future__ import annotations

import itertools

from lockgate_common.story_log import KEPT, KEPT_QUIET, MAX_EFFECTS, MAX_TEXT, Outside, StoryLog, grouped


def _log() -> StoryLog:
    return StoryLog("tm-1", "tm-1.ab12", itertools.count(1))


def test_an_event_gets_an_id_that_its_effects_can_name() -> None:
    log = _log()
    first = log.add("a client cancels the job", Outside.CLIENT, ("tm-1: cancel",), unix_us=5, change="RUNNING -> X")
    second = log.add("it is cancelled", first, unix_us=7, place="count[0]", attempt=2)
    assert (first, second) == ("tm-1.ab12-1", "tm-1.ab12-2")
    lines = log.lines()
    assert [(line.id, line.cause_id, line.unix_us) for line in lines] == [(first, "client", 5), (second, first, 7)]
    assert (lines[0].process, lines[0].change, lines[0].effects) == ("tm-1", "RUNNING -> X", ("tm-1: cancel",))
    assert (lines[1].place, lines[1].attempt, lines[1].effects) == ("count[0]", 2, ())


def test_logs_that_share_their_numbers_give_no_id_twice() -> None:
    numbers = itertools.count(1)
    logs = [StoryLog("c", "c1", numbers), StoryLog("c", "c1", numbers)]
    assert len({log.add("x", Outside.TIMER, unix_us=0) for log in logs * 3}) == 6


def test_events_without_effects_do_not_displace_the_others() -> None:
    log = _log()
    cause = log.add("the trigger", Outside.TIMER, ("trigger checkpoint 1",), unix_us=0)
    for _ in range(10 * KEPT):
        log.add("an acknowledgement", cause, unix_us=0)
    lines = log.lines()
    assert lines[0].id == cause
    assert len(lines) == 1 + KEPT_QUIET
    assert log.is_cut(len(lines))
    for _ in range(2 * KEPT):
        log.add("followed", cause, ("something",), unix_us=0)
    assert len(log.lines()) == KEPT + KEPT_QUIET
    assert [line.event for line in log.lines(3)] == ["followed"] * 3


def test_after_the_end_little_is_kept() -> None:
    log = _log()
    for number in range(100):
        log.add(f"event {number}", Outside.TIMER, ("something",), unix_us=number)
    log.shrink(5)
    assert [line.unix_us for line in log.lines()] == [95, 96, 97, 98, 99]


def test_texts_are_cut() -> None:
    log = _log()
    log.add("x" * 10_000, "y" * 10_000, tuple("z" * 10_000 for _ in range(100)), unix_us=0)
    (line,) = log.lines()
    assert len(line.event) == MAX_TEXT
    assert len(line.cause_id) == MAX_TEXT
    assert len(line.effects) == MAX_EFFECTS + 1
    assert line.effects[-1] == f"and {100 - MAX_EFFECTS} more"
    log.add("one\nline", Outside.DATA, unix_us=0)
    assert log.lines()[-1].event == "one line"


def test_the_same_message_to_several_is_one_effect() -> None:
    names = [f"tm-{number}" for number in range(5)]
    pairs = [("", "record it"), *((name, "trigger checkpoint 1") for name in names), ("client", "done")]
    assert grouped(pairs) == ("record it", "tm-0, tm-1 and 3 more: trigger checkpoint 1", "client: done")
