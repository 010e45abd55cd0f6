"""A source that may make something else starts beside those that have had what it made before."""

from __future__ import annotations

from lockgate_taskmanager.spark.layout import ChainLayout

from tests.mutation.rewrite import rewrite

rewrite(ChainLayout, "irreproducible", "if why and self.is_behind:", "if False:")
