"""What the cluster's secret does for its nodes in ZooKeeper: only its processes have access, and records are sealed.

- **Owner**: a user of the digest scheme, whose password is derived from the secret. Nodes admit that user alone.
- **Seal**: a MAC over a record, its path and the format. It protects even if the owner's rights are bypassed: what
  was not written by a process that knows the secret is refused before anything in it is used, and a record that was
  copied to another node or another cluster is refused there.

Without a secret nodes are open to everyone, and records are as they are.
"""

from __future__ import annotations

import functools
import hmac
from dataclasses import dataclass, field

from lockgate_common.keys import derived_key, mac

from lockgate_ha.errors import UnsealedRecord
from lockgate_ha.paths import Paths, node_name

_SEALED = b"\xffsealed\x01"  # what no protobuf message and no number begins with
_MAC_BYTES = 32
_MARK = b"protected"

PROTECT = "lockgate zookeeper protect"


@dataclass(frozen=True, slots=True)
class Owner:
    """A user of ZooKeeper's digest scheme."""

    user: str
    password: str = field(repr=False)


def maker(secret: str) -> Owner:
    """The user that makes clusters of this secret where a server allows no other one."""
    return Owner("lockgate", derived_key(secret, "maker of clusters").hex())


def superuser(secret: str) -> Owner:
    """ZooKeeper's superuser, of a server that was started with this secret."""
    return Owner("super", derived_key(secret, "superuser").hex())


@dataclass(frozen=True)
class Protection:
    """Of one cluster. secret: "" for none."""

    cluster: str
    secret: str = field(default="", repr=False)

    @functools.cached_property
    def owner(self) -> Owner | None:
        """The only user with access to the cluster's nodes; None without a secret: then everyone has access."""
        if not self.secret:
            return None
        return Owner(f"lockgate-{node_name(self.cluster)}", derived_key(self.secret, f"owner {self.cluster}").hex())

    @functools.cached_property
    def _key(self) -> bytes:
        return derived_key(self.secret, f"record {self.cluster}")

    def seal(self, path: str, data: bytes) -> bytes:
        """The record as it is stored at `path`."""
        return _SEALED + mac(self._key, path.encode(), data) + data if self.secret else data

    def unseal(self, path: str, stored: bytes) -> bytes:
        """The record that is stored at `path`. Raises UnsealedRecord when this cluster's processes did not write it."""
        is_sealed = stored.startswith(_SEALED)
        if not self.secret:
            if is_sealed:
                raise UnsealedRecord(path, "it is sealed with a secret, and this process has none")
            return stored
        if not is_sealed:
            raise UnsealedRecord(
                path,
                "it is not sealed with the cluster's secret. If the cluster was made by an earlier version, stop it and"
                f" run `{PROTECT}`; otherwise someone else has written it",
            )
        found, data = stored[len(_SEALED) :][:_MAC_BYTES], stored[len(_SEALED) + _MAC_BYTES :]
        if not hmac.compare_digest(found, mac(self._key, path.encode(), data)):
            raise UnsealedRecord(
                path, "its seal is for another path or another secret: someone else has written or moved it"
            )
        return data

    def mark(self, paths: Paths) -> bytes:
        """Content of the cluster's root node: that everything below it is protected, with this secret."""
        return self.seal(paths.base, _MARK) if self.secret else b""

    def check_mark(self, paths: Paths, content: bytes) -> None:
        """Raises UnsealedRecord when the cluster was made without a secret, or with another one."""
        if self.secret or content:
            self.unseal(paths.base, content)


UNPROTECTED = Protection("")
"""Of any cluster without a secret."""
