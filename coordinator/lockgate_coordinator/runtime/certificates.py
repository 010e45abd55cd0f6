"""Callers that show a certificate, and neither secret nor token. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lockgate_common.roles import Principal, roles_named


def certificate_caller(names: Sequence[str], roles: Mapping[str, tuple[str, ...]]) -> Principal | None:
    """The holder of a certificate, None without one. It may do what the roles of all its names let it do.

    names: the common name first, as far as there is one; roles: by name. The signature has been checked.
    """
    if not names:
        return None
    known = [name for name in names if name in roles]
    given = frozenset(role for name in known for role in roles_named(roles[name]))
    return Principal(f"certificate {(known or names)[0]}", given)
