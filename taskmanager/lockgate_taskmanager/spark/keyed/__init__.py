"""Operators with state for each key: process functions and deduplication."""
