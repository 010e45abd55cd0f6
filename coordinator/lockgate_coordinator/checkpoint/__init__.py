"""Asynchronous barrier snapshots on the leader: trigger, collect, persist, complete, subsume. Pure."""
