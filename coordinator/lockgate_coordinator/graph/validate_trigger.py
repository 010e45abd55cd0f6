"""Validates windows that also fire early."""

from __future__ import annotations

from collections.abc import Iterator

from lockgate_proto.messages import TriggeredWindow, Window

from lockgate_coordinator.graph.bounds import MAX_DURATION_MS


def trigger_problems(window: Window, kind: TriggeredWindow) -> Iterator[str]:
    """The problems of the trigger of an aggregate's window; the caller puts the operator's name in front."""
    if kind.every_count < 0:
        yield f"has a trigger with every_count {kind.every_count}: it must be at least 1, or 0 for none."
    if not 0 <= kind.every_ms <= MAX_DURATION_MS:
        yield f"has a trigger with every_ms {kind.every_ms}: it must be between 1 and {MAX_DURATION_MS}, or 0 for none."
    if not kind.every_count and not kind.every_ms:
        yield "has a trigger that never fires: set every_count, every_ms, or both."
    if window.processing_time:
        yield "has a trigger on windows of processing time: only windows of event time fire early."
    if kind.purge and window.allowed_lateness_ms:
        yield (
            f"has a trigger that purges and allowed_lateness_ms {window.allowed_lateness_ms}: a late record would need "
            "the result of all records, so it must be 0."
        )
