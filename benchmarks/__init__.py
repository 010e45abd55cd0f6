"""Measurements against the goals of this release: `python -m benchmarks.failover|wordcount|state|startup`."""
