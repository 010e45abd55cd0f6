"""The common part of stores in memory: full snapshots, and increments on the newest one that is certainly complete."""
