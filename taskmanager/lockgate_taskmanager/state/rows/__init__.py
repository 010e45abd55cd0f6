"""Rows by key, as bytes that only their owner reads: process functions and deduplication, in memory or in RocksDB."""
