"""What this room raises."""

from __future__ import annotations


class IllegalTransition(RuntimeError):
    """An event that cannot happen in the present state. The message tells the recent history."""
