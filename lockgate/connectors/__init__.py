"""What authors write their own sources and sinks with."""

from __future__ import annotations

from lockgate_proto.transactions import Transaction

from lockgate.connectors.sink import CustomSink
from lockgate.connectors.source import CustomSource

__all__ = ["CustomSink", "CustomSource", "Transaction"]
