"""The in-memory twin of ZooKeeper, held to the same contract tests: for unit tests and simulations."""

from __future__ import annotations

from ha.embedded.server import EmbeddedConnector, EmbeddedZooKeeper
from ha.embedded.session import EmbeddedSession

__all__ = ["EmbeddedConnector", "EmbeddedSession", "EmbeddedZooKeeper"]
