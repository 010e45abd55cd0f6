"""Which windows are due, against a look at every window of every pane; and what that costs."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st
from lockgate_taskmanager.state.windows.shape import WindowShape
from lockgate_taskmanager.task.watermarks import MAX_WATERMARK, MIN_WATERMARK

shapes = st.one_of(
    st.builds(
        lambda slide, size, offset: WindowShape(size, slide, offset % slide, 0),
        st.integers(1, 12),
        st.integers(1, 40),
        st.integers(0, 11),
    ),
    st.builds(
        lambda step, steps, offset: WindowShape(step * steps, step, offset % (step * steps), 0, is_cumulating=True),
        st.integers(1, 12),
        st.integers(1, 6),
        st.integers(0, 40),
    ),
)
times = st.one_of(st.integers(-60, 120), st.sampled_from([MIN_WATERMARK, MAX_WATERMARK]))


@given(shapes, st.sets(st.integers(-40, 40) | st.integers(10**9, 10**9 + 20), max_size=12), times, times)
@settings(max_examples=500, deadline=None)
def test_due_are_the_ends_of_all_windows_of_all_panes(
    shape: WindowShape, places: set[int], number: int, two: int
) -> None:
    panes = sorted({shape.offset_ms + place * shape.pane_ms for place in places})
    before, now = min(number, two), max(number, two)
    expected = {end for pane in panes for end in shape.ends(pane) if before + 1 < end <= now + 1}
    assert shape.due(panes, before, now) == sorted(expected)
    assert shape.next_due(panes, before) == min(
        (end for pane in panes for end in shape.ends(pane) if before + 1 < end), default=None
    )


@given(shapes, st.integers(-100, 100))
def test_a_window_consists_of_the_panes_that_it_holds(shape: WindowShape, place: int) -> None:
    pane = shape.offset_ms + place * shape.pane_ms
    for end in shape.ends(pane):
        assert shape.start(end) <= pane < end
        assert all(end in shape.ends(other) for other in range(shape.start(end), end, shape.pane_ms))


class Counted(Sequence[int]):
    """Says how often it was looked at."""

    def __init__(self, values: Sequence[int]) -> None:
        self.values, self.looks = values, 0

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, place: int) -> int:  # type: ignore[override]
        self.looks += 1
        return self.values[place]


def test_a_watermark_that_fires_little_looks_at_few_of_many_panes() -> None:
    shape = WindowShape(3_600_000, 1000, 0, 0)
    panes = Counted(range(0, 7_200_000, 1000))
    assert shape.due(panes, 3_600_000, 3_600_005) == []
    assert panes.looks <= 50
    panes.looks = 0
    assert shape.due(panes, 3_600_000, 3_602_500) == [3_601_000, 3_602_000]
    assert panes.looks <= 100
