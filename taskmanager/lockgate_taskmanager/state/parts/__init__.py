"""State that consists of named parts: the changed parts of a snapshot are one file, and later snapshots refer to it."""
