"""What a signature says about state that has no values by key."""

from __future__ import annotations

import pytest
from lockgate_proto.messages import Aggregate, CountWindow, IntervalJoin, JoinSide, TumblingWindow, Window
from lockgate_taskmanager.state.contents.contents_spec import ContentsSpec
from lockgate_taskmanager.state.counts.count_spec import CountSpec
from lockgate_taskmanager.state.join.join_spec import signature
from lockgate_taskmanager.state.query.identity import spec_of
from lockgate_taskmanager.task.program import StateUnreadable, UserError


def test_a_join_is_refused_as_one() -> None:
    with pytest.raises(UserError, match="operator op is a join"):
        spec_of("op", signature(IntervalJoin(("a",), ("a",)), JoinSide.LEFT), 16)


def test_the_records_of_windows_are_no_values_by_key() -> None:
    spec = ContentsSpec("op", ("a",), Window(TumblingWindow(5), "at"), 16, range(16))
    with pytest.raises(UserError, match="operator op keeps the records of windows for a function"):
        spec_of("op", spec.signature, 16)


def test_count_windows_have_no_values_by_key() -> None:
    spec = CountSpec.of("op", CountWindow(("a",), 5, 5, (Aggregate("n"),)), 16, range(16))
    with pytest.raises(UserError, match="operator op has count windows"):
        spec_of("op", spec.signature, 16)


@pytest.mark.parametrize("text", ['{"keys": ["a"], "later": 1}', "{}"])
def test_an_unknown_kind_is_not_called_a_join(text: str) -> None:
    with pytest.raises(StateUnreadable, match="of a kind that this task manager does not know"):
        spec_of("op", text, 16)
