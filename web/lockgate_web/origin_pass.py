"""What lets the page of one coordinator read at another one: a proof that its origin is a dashboard of the cluster.

The page gets it while its own coordinator lives, and shows it when that has died. It says nothing of who looks at the
page.
"""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable
from urllib.parse import parse_qs

from lockgate_common.keys import derived_key, mac

PARAMETER = "pass"
_LASTS_S = 24 * 3600


class OriginPasses:
    """secret: of the cluster; without one there are no passes."""

    def __init__(self, secret: str, now_s: Callable[[], float] = time.time) -> None:
        self._key = derived_key(secret, "dashboard origin") if secret else b""
        self._now_s = now_s

    def of(self, origin: str) -> str:
        """For the pages of an origin, `http://host:port`; "" without a secret."""
        return self._made(origin, int(self._now_s()) + _LASTS_S) if self._key else ""

    def is_valid(self, origin: str, query: bytes) -> bool:
        """True when the query has a pass of this origin."""
        shown = parse_qs(query.decode("latin-1"), max_num_fields=20).get(PARAMETER, [""])[0]
        ends, _, _ = shown.partition(".")
        if not self._key or not origin or not (ends.isascii() and ends.isdecimal() and len(ends) < 16):
            return False
        return int(ends) > self._now_s() and hmac.compare_digest(shown, self._made(origin, int(ends)))

    def _made(self, origin: str, ends_s: int) -> str:
        return f"{ends_s}.{mac(self._key, origin.lower().encode(), str(ends_s).encode()).hex()}"
