"""The format of snapshot files: how keyed state is written, cut, divided into increments and differences, and read."""
