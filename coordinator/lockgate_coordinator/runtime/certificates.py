"""Callers that show a certificate, and neither secret nor token."""

from __future__ import annotations

from collections.abc import Mapping

from lockgate_common.roles import Principal, roles_named
from lockgate_common.serving.calls import Call
from lockgate_common.token import authorization_of


def certificate_caller(call: Call, roles: Mapping[str, tuple[str, ...]]) -> Principal | None:
    """The holder of a certificate; it may do what the roles of all its names let it do.

    None without one, or when the call shows something itself, which counts more. roles: by common or alternative name.
    The authority's signature has been checked by the handshake.
    """
    if authorization_of(call.metadata):
        return None
    names = call.certificate_names
    if not names:
        return None
    known = [name for name in names if name in roles]
    given = frozenset(role for name in known for role in roles_named(roles[name]))
    return Principal(f"certificate {(known or names)[0]}", given)
