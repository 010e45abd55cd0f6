"""A cluster's owner in ZooKeeper's terms: what a client says of itself, and the access control lists of its nodes."""

from __future__ import annotations

from typing import Any

from kazoo.security import ACL, OPEN_ACL_UNSAFE, Id, make_acl, make_digest_acl

from lockgate_ha.protection import Owner, Protection, maker


def rights(protection: Protection) -> dict[str, Any]:
    """Options of a kazoo client that acts as the owner."""
    users = _users(protection)
    return {"auth_data": [("digest", f"{user.user}:{user.password}") for user in users]} if users else {}


def handed_over(entries: list[ACL], former: Protection, protection: Protection) -> list[ACL]:
    """The same rights for the users of `protection` in place of those of `former`."""
    successors = dict(zip(_identities(former), _identities(protection), strict=False))
    return [ACL(entry.perms, successors.get(entry.id, entry.id)) for entry in entries]


def _users(protection: Protection) -> tuple[Owner, ...]:
    owner = protection.owner
    return () if owner is None else (owner, maker(protection.secret))


def _identities(protection: Protection) -> list[Id]:
    return [make_digest_acl(user.user, user.password, all=True).id for user in _users(protection)]


def acl_of(protection: Protection, *, shared: bool) -> list[ACL]:
    """Of a node of the cluster. shared: others may read it and make nodes below it."""
    owner = protection.owner
    if owner is None:
        return list(OPEN_ACL_UNSAFE)
    others = [make_acl("world", "anyone", read=True, create=True)] if shared else []
    return [make_digest_acl(owner.user, owner.password, all=True), *others]
