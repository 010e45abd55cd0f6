"""What tells the metadata of this cluster's own snapshots from what others have put into the storage.

A snapshot decides what a job computes, which files its sinks publish, and what libraries parse. So its metadata ends
with a digest of all bytes in front, and a MAC of that with the cluster's secret; of state files it has the SHA-256. The
place is no part of it: a snapshot may be moved. Whose it is (job, run, checkpoint) stands inside.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass, field

from lockgate_common.keys import derived_key, mac
from lockgate_proto.codec import encode
from lockgate_proto.messages import CheckpointMetadata

_BYTES = 32
_DIGEST = encode(CheckpointMetadata(digest=bytes(_BYTES)))[:-_BYTES]  # what stands in front of the field's content
_SEAL = encode(CheckpointMetadata(seal=bytes(_BYTES)))[:-_BYTES]
_END_BYTES = len(_DIGEST) + len(_SEAL) + 2 * _BYTES
TRUST = "--trust-snapshot"
_TRUST = f"if you trust its author, submit with {TRUST}"


class UnverifiedFile(ValueError):
    """A file is not what was written, or not by whom it has to be. The message is the rest of a sentence about it."""


class ForeignSeal(UnverifiedFile):
    """It has no seal, or one of another cluster."""


@dataclass(frozen=True)
class SnapshotSeal:
    """Of one cluster. secret: "" for none: nothing is sealed, and everything is believed that is not damaged."""

    cluster: str
    secret: str = field(default="", repr=False)

    @functools.cached_property
    def _key(self) -> bytes:
        return derived_key(self.secret, f"snapshot {self.cluster}")

    def sealed(self, encoded: bytes) -> bytes:
        """The content of the file for encoded metadata."""
        digest = hashlib.sha256(encoded).digest()
        return encoded + encode(CheckpointMetadata(digest=digest, seal=self._seal(digest)))

    def _seal(self, digest: bytes) -> bytes:
        return mac(self._key, digest) if self.secret else b""

    def check(self, pieces: Iterable[bytes]) -> None:
        """Raises UnverifiedFile unless a process of this cluster wrote the bytes in these pieces, whole.

        Holds no more than one piece.
        """
        digest, seal = _verified(pieces)
        if not self.secret:
            return
        if not seal:
            raise ForeignSeal(f"is not sealed with the secret of cluster {self.cluster}; {_TRUST}")
        if not hmac.compare_digest(seal, self._seal(digest)):
            raise ForeignSeal(f"has the seal of another secret or cluster than {self.cluster}; {_TRUST}")


def unsealed(data: bytes) -> bytes:
    """The encoded metadata in a file's content. Raises UnverifiedFile where it is not as it was written."""
    _verified((data,))
    return _parts(data)[0]


def _verified(pieces: Iterable[bytes]) -> tuple[bytes, bytes]:
    """Digest and seal at the end of the pieces. Raises UnverifiedFile for what the digest does not fit."""
    hashed, tail = hashlib.sha256(), b""
    for piece in pieces:
        tail += piece
        hashed.update(memoryview(tail)[:-_END_BYTES])
        tail = tail[-_END_BYTES:]
    encoded, digest, seal = _parts(tail)
    hashed.update(encoded)
    if digest and not hmac.compare_digest(digest, hashed.digest()):
        raise UnverifiedFile("is corrupt: it has changed since it was written; start from another one")
    return digest, seal


def _parts(data: bytes) -> tuple[bytes, bytes, bytes]:
    """Encoded metadata, digest and seal; the latter are empty where there are none."""
    rest, seal = _cut(data, _SEAL)
    encoded, digest = _cut(rest, _DIGEST)
    return encoded, digest, seal if digest else b""


def _cut(data: bytes, mark: bytes) -> tuple[bytes, bytes]:
    """What is in front of a field of 32 bytes at the end, and the field's content; all of it and nothing without."""
    front, content = data[:-_BYTES], data[-_BYTES:]
    return (front.removesuffix(mark), content) if front.endswith(mark) else (data, b"")
