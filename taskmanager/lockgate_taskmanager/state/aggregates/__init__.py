"""Aggregates by key without windows, in memory or in RocksDB."""
