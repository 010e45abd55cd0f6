"""The job graph checked and filled in, and its expansion to subtasks on slots. Pure."""
