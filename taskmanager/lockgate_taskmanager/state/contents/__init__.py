"""The records of windows, kept whole until the windows are over, for functions that are called with them."""
