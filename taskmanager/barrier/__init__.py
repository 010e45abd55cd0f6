"""Barrier alignment of one subtask's input channels (pure)."""
