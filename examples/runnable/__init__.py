"""The examples that `python -m examples` lists. One module is one example: see `examples.frame.Example`."""
