"""Which versions work together, and what is said to those that do not."""

from __future__ import annotations

import pytest
from lockgate_proto import release
from lockgate_proto.codec import UnknownField, decode, encode, unknown_field
from lockgate_proto.messages import Heartbeat, JobGraph, Layout, Operator, Release, SubmitRequest, Vertex
from lockgate_proto.release import is_newer, own_release, release_problem

OLD, MIDDLE, NEW = Release("0.1.0", 1, 1), Release("0.2.0", 2, 1), Release("0.3.0", 3, 3)
GRAPH = JobGraph("numbers", (Vertex("numbers", operators=(Operator("numbers"),)),))
FIELD_1000 = b"\xc0\x3e\x01"  # a number in field 1000


@pytest.mark.parametrize(
    ("mine", "theirs", "expected"),
    [
        (OLD, OLD, ""),
        (OLD, MIDDLE, ""),
        (MIDDLE, OLD, ""),
        (MIDDLE, None, ""),
        (
            MIDDLE,
            NEW,
            "task manager a runs Lockgate 0.3.0, which works with revision 3 of the messages and later, but this "
            "coordinator runs 0.2.0 with revision 2: upgrade this coordinator first, or start task manager a with "
            "0.2.0",
        ),
        (
            NEW,
            MIDDLE,
            "task manager a runs Lockgate 0.2.0 with revision 2 of the messages, but this coordinator runs 0.3.0, "
            "which works with revision 3 and later: upgrade task manager a to 0.3.0",
        ),
        (
            NEW,
            None,
            "task manager a runs an early Lockgate with revision 1 of the messages, but this coordinator runs 0.3.0, "
            "which works with revision 3 and later: upgrade task manager a to 0.3.0",
        ),
    ],
)
def test_two_versions_fit_or_the_error_says_what_to_do(mine: Release, theirs: Release | None, expected: str) -> None:
    assert release_problem(mine, "this coordinator", theirs, "task manager a") == expected


def test_this_version_fits_itself() -> None:
    assert release_problem(own_release(), "this coordinator", own_release(), "task manager a") == ""
    assert own_release().version[0].isdigit()


def test_records_of_later_formats_are_newer() -> None:
    assert [is_newer(found) for found in (0, 1, release.RECORD_FORMAT, release.RECORD_FORMAT + 1)] == [
        False,
        False,
        False,
        True,
    ]


def test_a_job_graph_is_understood_whole_or_refused() -> None:
    assert decode(JobGraph, encode(GRAPH)) == GRAPH
    for kind, data in (
        (JobGraph, encode(GRAPH) + FIELD_1000),
        (SubmitRequest, encode(SubmitRequest("key", GRAPH)) + FIELD_1000),
    ):
        with pytest.raises(
            UnknownField, match=rf"{kind.__name__} has a field 1000, which Lockgate .* use that version"
        ):
            decode(kind, data)


def _with_unknown_operator_field() -> bytes:
    """The graph, whose operator has a field of a later version."""
    whole, operator = encode(GRAPH), encode(Operator("numbers"))
    vertex = encode(Vertex("numbers", operators=(Operator("numbers"),)))
    grown = vertex.replace(bytes([len(operator)]) + operator, bytes([len(operator) + 3]) + operator + FIELD_1000)
    assert len(grown) == len(vertex) + 3
    return whole.replace(bytes([len(vertex)]) + vertex, bytes([len(grown)]) + grown)


def test_a_field_that_only_an_operator_has_is_found() -> None:
    with pytest.raises(UnknownField, match="Operator has a field 1000"):
        decode(JobGraph, _with_unknown_operator_field())


def test_other_messages_may_say_more() -> None:
    assert decode(Heartbeat, encode(Heartbeat(3)) + FIELD_1000) == Heartbeat(3)
    assert unknown_field(Layout, encode(Layout(GRAPH))) == ""
    assert "Layout has a field 1000" in unknown_field(Layout, encode(Layout(GRAPH)) + FIELD_1000)
