"""What the barriers of one subtask's input channels ask for, in each checkpoint mode (pure)."""
