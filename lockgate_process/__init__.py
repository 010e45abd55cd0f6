"""What every server process of a cluster has, whichever its role: its addresses, and points at which tests kill it."""
