"""A source that starts again sends its receivers what they have had from an earlier attempt of it."""

from __future__ import annotations

from lockgate_taskmanager.exchange.outbox import Outbox

from tests.mutation.rewrite import rewrite

rewrite(Outbox, "add", "is_had or (", "(")
