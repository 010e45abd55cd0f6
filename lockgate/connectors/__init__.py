"""The base classes for custom sources and sinks."""

from __future__ import annotations

from lockgate_proto.transactions import Transaction

from lockgate.connectors.sink import CustomSink
from lockgate.connectors.source import CustomSource

__all__ = ["CustomSink", "CustomSource", "Transaction"]
