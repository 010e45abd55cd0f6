"""What is sent again is handled again."""

from __future__ import annotations

from lockgate_common.session import Session

from tests.mutation.rewrite import rewrite

rewrite(Session, "receive", "return False", "return True")
