"""Contract tests for custom sources and sinks, to be called from their authors' tests.

>>> from lockgate.testing import check_sink, check_source
>>> def test_orders_can_be_replayed():
...     check_source(lambda: Orders("shop.db"))
"""

from __future__ import annotations

from lockgate.testing.sink import check_sink
from lockgate.testing.source import check_source

__all__ = ["check_sink", "check_source"]
