"""What every store in memory shares: full snapshots, and increments on the newest one that is certainly complete."""
