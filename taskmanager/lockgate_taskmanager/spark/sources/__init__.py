"""Sources: their splits, and the next micro-batch. No Spark in this package."""
