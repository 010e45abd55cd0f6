"""When sources rest because their leader was lost."""

from __future__ import annotations

from lockgate_taskmanager.runtime.source_rest import REST_S, SourceRest

LOST = 7


class Clock:
    """Stands still until it is set."""

    now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


def resting(clock: Clock) -> SourceRest:
    rest = SourceRest(clock)
    assert rest.pause(LOST) is None
    rest.begin(LOST)
    assert rest.pause(LOST) is not None
    return rest


def test_a_rest_ends_by_itself() -> None:
    rest = resting(clock := Clock())
    clock.now_s += REST_S - 0.001
    assert rest.pause(LOST) is not None
    clock.now_s += 0.001
    assert rest.pause(LOST) is None


def test_it_ends_when_the_same_leader_is_back_but_not_for_its_successor() -> None:
    rest = resting(Clock())
    rest.registered(LOST + 1)
    assert rest.pause(LOST) is not None
    rest.registered(LOST)
    assert rest.pause(LOST) is None


def test_what_a_successor_has_deployed_does_not_rest() -> None:
    rest = resting(Clock())
    assert rest.pause(LOST - 1) is not None
    assert rest.pause(LOST + 1) is None
