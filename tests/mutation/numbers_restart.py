"""With a new term the numbers of control messages begin at one again."""

from __future__ import annotations

from lockgate_common.session import Session

from tests.mutation.rewrite import rewrite

rewrite(Session, "enter", "self._kept.clear()", "self._kept.clear(); self._sent = self.handled = 0")
