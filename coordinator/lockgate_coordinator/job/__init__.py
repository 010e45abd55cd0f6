"""One job under one leader: recovery, attempts, splits, restarts, the end. Pure."""
