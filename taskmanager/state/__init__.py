"""Keyed state: folded on Arrow batches, frozen copy-on-write, stored by key group. Knows nothing of Spark."""
