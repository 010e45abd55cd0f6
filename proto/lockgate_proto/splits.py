"""What the numbers of a SplitState stand for."""

UNBOUNDED = -1  # the end of a split that has none
