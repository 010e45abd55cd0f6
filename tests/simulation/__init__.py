"""Deterministic simulation: the real machines on a manual clock, over a seeded network and the embedded store."""
