"""A cluster's owner in ZooKeeper's terms: what a client says of itself, and the access control lists of its nodes."""

from __future__ import annotations

from typing import Any

from kazoo.security import ACL, OPEN_ACL_UNSAFE, make_acl, make_digest_acl

from lockgate_ha.protection import Protection, maker


def rights(protection: Protection) -> dict[str, Any]:
    """Options of a kazoo client that acts as the owner."""
    owner = protection.owner
    if owner is None:
        return {}
    users = (owner, maker(protection.secret))
    return {"auth_data": [("digest", f"{user.user}:{user.password}") for user in users]}


def acl_of(protection: Protection, *, shared: bool) -> list[ACL]:
    """Of a node of the cluster. shared: others may read it and make nodes below it."""
    owner = protection.owner
    if owner is None:
        return list(OPEN_ACL_UNSAFE)
    others = [make_acl("world", "anyone", read=True, create=True)] if shared else []
    return [make_digest_acl(owner.user, owner.password, all=True), *others]
