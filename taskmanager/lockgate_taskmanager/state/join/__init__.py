"""Interval joins: rows of both sides that wait for partners, in memory or in RocksDB."""
