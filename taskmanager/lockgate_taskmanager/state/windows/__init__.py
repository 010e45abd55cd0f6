"""Aggregates by key and window: tumbling and sliding ones as panes, and sessions, in memory or in RocksDB."""
