"""What this room raises."""

from __future__ import annotations


class SettingsError(ValueError):
    """A setting that cannot work. The message names it and says what to use."""
