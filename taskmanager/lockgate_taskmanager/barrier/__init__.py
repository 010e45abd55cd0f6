"""Barrier handling over the input channels of one subtask, for each checkpoint mode (pure)."""
