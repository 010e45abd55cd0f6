"""Operators with state of their own for each key: process functions and deduplication."""
