"""Notes of passed tests, printed at the end of the run."""

from __future__ import annotations

RUN_NOTE = "run_note"
"""The name of a test property (`record_property`) whose value is printed at the end of the run."""
