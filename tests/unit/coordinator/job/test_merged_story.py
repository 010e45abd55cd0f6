"""Stories of several processes as one: causes above what they caused, whatever the clocks say."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from lockgate_coordinator.job.merged_story import merged
from lockgate_proto.messages import StoryLine


def _line(event_id: str, cause_id: str = "timer", unix_us: int = 0) -> StoryLine:
    return StoryLine(event_id, cause_id, unix_us)


def _ids(*parts: list[StoryLine]) -> list[str]:
    return [line.id for line in merged(parts)]


def test_time_decides_where_no_cause_does() -> None:
    assert _ids([_line("a-1", unix_us=1), _line("a-2", unix_us=5)], [_line("b-1", unix_us=3)]) == ["a-1", "b-1", "a-2"]


def test_a_cause_precedes_its_effect_though_its_clock_is_ahead() -> None:
    leader = [_line("c1-1", unix_us=1_000), _line("c1-2", "tm-1", unix_us=1_002)]
    task_manager = [_line("tm-1", "c1-1", unix_us=7), _line("tm-2", "data", unix_us=8)]
    assert _ids(leader, task_manager) == ["c1-1", "tm-1", "tm-2", "c1-2"]


def test_a_discarded_cause_blocks_nothing() -> None:
    assert _ids([_line("tm-5", "c1-9", unix_us=2)], [_line("c2-1", "leadership", unix_us=1)]) == ["c2-1", "tm-5"]


def test_causes_in_a_circle_lose_no_line() -> None:
    assert sorted(_ids([_line("a", "b")], [_line("b", "a")], [_line("c", "c")])) == ["a", "b", "c"]


@st.composite
def histories(draw: st.DrawFn) -> list[list[StoryLine]]:
    """Events as they happened, each caused by an earlier one or by none, in processes whose clocks are anywhere."""
    processes = draw(st.integers(1, 4))
    offsets = draw(st.lists(st.integers(0, 50), min_size=processes, max_size=processes))
    parts: list[list[StoryLine]] = [[] for _ in range(processes)]
    for number in range(draw(st.integers(0, 30))):
        process = draw(st.integers(0, processes - 1))
        cause = draw(st.integers(-1, number - 1))
        line = _line(f"e-{number}", f"e-{cause}" if cause >= 0 else "data", number + offsets[process])
        parts[process].append(line)
    return parts


@given(histories())
def test_every_story_is_in_a_causal_order(parts: list[list[StoryLine]]) -> None:
    lines = merged(parts)
    place = {line.id: at for at, line in enumerate(lines)}
    assert len(place) == sum(map(len, parts))
    assert all(place[line.cause_id] < place[line.id] for line in lines if line.cause_id != "data")
    for part in parts:
        assert [line for line in lines if line in part] == part
