"""Clicks of users that come out of order: input of the examples that look at event time."""

from __future__ import annotations

import json

from examples.frame.example import Place

_FILES = 4
_START_MS = 1_772_323_200_000  # 2026-03-01
_PAGES = 50


def write_clicks(place: Place, *, clicks: int, users: int, length_ms: int, disorder_ms: int) -> int:
    """Files of JSON lines {at, user, page} that all begin at the same time; returns how many clicks there are in all.

    clicks: in each file; length_ms: of event time; disorder_ms: how much earlier a click may be than one before it.
    """
    choice = place.random()
    for number in range(_FILES):
        lines = []
        for row in range(clicks):
            at = _START_MS + length_ms * row // clicks - choice.randrange(disorder_ms)
            lines.append(json.dumps({"at": at, "user": choice.randrange(users), "page": choice.randrange(_PAGES)}))
        (place.input / f"{number}.json").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return _FILES * clicks
