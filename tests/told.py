"""What a test has to tell although it has passed."""

from __future__ import annotations

TOLD = "told"
"""A property of a test (`record_property`) whose value stands at the end of the run."""
