"""A pipeline on a sample of its input, in one process and without a cluster."""
