"""Reads what a snapshot holds for single keys, without a store."""
