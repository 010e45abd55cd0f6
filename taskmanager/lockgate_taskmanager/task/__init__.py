"""The pure part of a subtask: its life cycle, and the interface to the program it runs."""
