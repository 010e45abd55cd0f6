"""Asynchronous barrier snapshots seen from the leader: trigger, collect, persist, complete, subsume. Pure."""
