"""Sources: which splits there are, and what the next micro-batch of them is. No Spark in here."""
