"""The cookie of a login: the token itself, sealed with a key of the cluster, so that every coordinator can open it."""

from __future__ import annotations

import base64
import binascii
import secrets
import struct
import time
from collections.abc import Callable

from lockgate_common.keys import derived_key

_LASTS_S = 12 * 3600
_NONCE_BYTES = 12
_LONGEST = 3_900  # browsers keep 4,096 bytes with the name


class LoginCookie:
    """secret: of the cluster, "" for none, and then there are no logins; is_secure: sent over TLS alone."""

    def __init__(self, secret: str, *, is_secure: bool, now_s: Callable[[], float] = time.time) -> None:
        self._key = derived_key(secret, "login cookie") if secret else b""
        self._is_secure = is_secure
        self._now_s = now_s
        # Cookies of one host are shared by its ports, where other clusters may be.
        mark = derived_key(secret, "login cookie name")[:4].hex() if secret else ""
        self.name = f"{'__Host-' if is_secure else ''}lockgate-{mark}"

    def header(self, token: str) -> str:
        """The value of `Set-Cookie`; an empty token takes the cookie back."""
        value, lasts_s = (self._sealed(token), _LASTS_S) if token else ("", 0)
        secure = "; Secure" if self._is_secure else ""
        return f"{self.name}={value}; Path=/; Max-Age={lasts_s}; HttpOnly; SameSite=Strict{secure}"

    def opened(self, value: str) -> str:
        """The token in it; "" for what is no valid cookie."""
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        if not self._key or not value or len(value) > _LONGEST:
            return ""
        try:
            raw = base64.b64decode(value.encode("ascii"), altchars=b"-_", validate=True)
            plain = AESGCM(self._key).decrypt(raw[:_NONCE_BYTES], raw[_NONCE_BYTES:], self.name.encode())
        except (binascii.Error, UnicodeEncodeError, ValueError, InvalidTag):
            return ""
        (ends_s,) = struct.unpack(">d", plain[:8])
        return plain[8:].decode() if self._now_s() < ends_s else ""

    def _sealed(self, token: str) -> str:
        """Raises ValueError for one that is too long."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        if not self._key:
            raise ValueError("this cluster has no secret, so there are no logins")
        nonce = secrets.token_bytes(_NONCE_BYTES)
        plain = struct.pack(">d", self._now_s() + _LASTS_S) + token.encode()
        value = base64.urlsafe_b64encode(nonce + AESGCM(self._key).encrypt(nonce, plain, self.name.encode())).decode()
        if len(value) > _LONGEST:
            raise ValueError("this token is too long for a cookie; send it as the header Authorization: Bearer TOKEN")
        return value
