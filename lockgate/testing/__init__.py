"""For the tests of pipelines, and of custom sources and sinks; to be called from their authors' tests.

>>> from lockgate.testing import check_sink, check_source, preview
>>> def test_words_are_counted():
...     assert preview(wordcount("books"))["counts"] == [{"word": "to", "n": 2}]
>>> def test_orders_can_be_replayed():
...     check_source(lambda: Orders("shop.db"))
"""

from __future__ import annotations

from lockgate.testing.pipeline import preview
from lockgate.testing.sink import check_sink
from lockgate.testing.source import check_source

__all__ = ["check_sink", "check_source", "preview"]
