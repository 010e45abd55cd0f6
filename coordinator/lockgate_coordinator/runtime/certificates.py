"""Callers that show a certificate, and neither secret nor token."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from lockgate_common.roles import Principal, roles_named
from lockgate_common.serving.calls import Call
from lockgate_common.token import authorization_of


def certificate_caller(call: Call, roles: Mapping[str, tuple[str, ...]], now_s: float) -> Principal | None:
    """The holder of a certificate; it may do what the roles of all its names let it do.

    None without one, or when the call shows something itself, which counts more. roles: by common or alternative name;
    now_s: of the wall clock. The handshake has checked the rest, its end as well, but a connection may outlive that.
    """
    if authorization_of(call.metadata):
        return None
    names, pem = call.certificate
    if not names or now_s >= _end_s(pem):
        return None
    known = [name for name in names if name in roles]
    given = frozenset(role for name in known for role in roles_named(roles[name]))
    return Principal(f"certificate {(known or names)[0]}", given)


@lru_cache(maxsize=1_000)
def _end_s(certificate: bytes) -> float:
    from cryptography import x509  # takes long, and is needed with TLS alone

    return x509.load_pem_x509_certificate(certificate).not_valid_after_utc.timestamp()
