"""The in-memory twin of ZooKeeper, which passes the same contract tests: for unit tests and simulations."""

from __future__ import annotations

from lockgate_ha.embedded.server import EmbeddedConnector, EmbeddedZooKeeper
from lockgate_ha.embedded.session import EmbeddedSession

__all__ = ["EmbeddedConnector", "EmbeddedSession", "EmbeddedZooKeeper"]
