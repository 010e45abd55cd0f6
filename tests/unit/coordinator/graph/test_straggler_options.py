"""What can be asked for when stragglers are replaced."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from lockgate_coordinator.graph.normalize import normalize
from lockgate_coordinator.graph.validate import validate
from lockgate_proto.messages import StragglerReplacement

from tests.unit.coordinator.jobs import word_count


def asked(option: StragglerReplacement | None) -> tuple[str, ...]:
    return tuple(validate(normalize(replace(word_count(), straggler_replacement=option))))


def test_it_is_off_by_default_and_omitted_values_are_filled_in() -> None:
    assert normalize(word_count()).straggler_replacement is None
    graph = normalize(replace(word_count(), straggler_replacement=StragglerReplacement()))
    assert graph.straggler_replacement == StragglerReplacement(3.0, 30_000, 60_000)
    assert normalize(graph) == graph
    assert not asked(StragglerReplacement())
    assert not asked(StragglerReplacement(1.5, 1_000, 1_000))


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        (StragglerReplacement(factor=1.2), "factor is 1.2: it must be at least 1.5"),
        (StragglerReplacement(factor=-3), "factor is -3"),
        (StragglerReplacement(factor=math.nan), "factor is nan"),
        (StragglerReplacement(factor=math.inf), "factor is inf"),
        (StragglerReplacement(window_ms=999), "window_ms is 999: it must be at least 1000"),
        (StragglerReplacement(pause_ms=-1), "pause_ms is -1"),
    ],
)
def test_invalid_options_are_refused(option: StragglerReplacement, expected: str) -> None:
    (problem,) = asked(option)
    assert expected in problem
