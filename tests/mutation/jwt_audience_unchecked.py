"""A JWT that an issuer has made for another service is taken, too."""

from __future__ import annotations

from typing import Any

import jwt

_decode = jwt.decode


def _for_anybody(*arguments: Any, options: dict[str, Any], **others: Any) -> Any:
    return _decode(*arguments, options={**options, "verify_aud": False}, **others)


jwt.decode = _for_anybody  # type: ignore[assignment]
