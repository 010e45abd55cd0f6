"""Where vertices are drawn."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from lockgate_web.layout import HEIGHT, WIDTH, layout


def test_a_chain_goes_from_left_to_right() -> None:
    drawn = layout(["a", "b", "c"], [("a", "b"), ("b", "c")])
    assert drawn.places["a"][0] + WIDTH < drawn.places["b"][0]
    assert drawn.places["b"][0] + WIDTH < drawn.places["c"][0] == drawn.width - WIDTH - 12
    assert len({y for _, y in drawn.places.values()}) == 1


def test_a_job_without_known_edges_is_a_column() -> None:
    drawn = layout(["a", "b"], [])
    assert drawn.places["a"][0] == drawn.places["b"][0]
    assert layout([], []).places == {}


NAMES = [f"v{number}" for number in range(8)]


@given(
    st.lists(st.sampled_from(NAMES), unique=True),
    st.lists(st.lists(st.sampled_from(NAMES), min_size=2, max_size=2, unique=True), max_size=20),
)
def test_no_vertex_covers_another(vertices: list[str], ends: list[list[str]]) -> None:
    edges = [(min(pair), max(pair)) for pair in ends]
    drawn = layout(vertices, edges)
    assert set(drawn.places) == set(vertices)
    boxes = sorted(drawn.places.values())
    for number, (x, y) in enumerate(boxes):
        assert 0 <= x <= drawn.width - WIDTH
        assert 0 <= y <= drawn.height - HEIGHT
        for other_x, other_y in boxes[number + 1 :]:
            assert abs(x - other_x) >= WIDTH or abs(y - other_y) >= HEIGHT, (vertices, edges)
