"""Checksums as records and handles carry them, the kind in front: `sha256:<64 hex digits>` or `crc32:<8 hex digits>`.

No one can make other content with the same SHA-256, so it stands for a file in a record that is sealed. A CRC notices
damage only: it is for bytes that are inside such a record, and older snapshots have nothing else.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

_SHA256 = "sha256:"
_CRC32 = "crc32:"


class Checksum:
    """SHA-256 of bytes that come piece by piece, and their number; CRC-32 where `like`, an expected one, is a CRC."""

    def __init__(self, like: str = "") -> None:
        self._sha256 = None if like.startswith(_CRC32) else hashlib.sha256()
        self._crc32 = 0
        self.size_bytes = 0

    def add(self, piece: bytes | pa.Buffer) -> None:
        """The next piece."""
        if self._sha256 is not None:
            self._sha256.update(piece)
        else:
            self._crc32 = zlib.crc32(piece, self._crc32)
        self.size_bytes += len(piece)

    def passing(self, pieces: Iterable[bytes | pa.Buffer]) -> Iterator[bytes | pa.Buffer]:
        """Yields the pieces unchanged, each after adding it to the checksum."""
        for piece in pieces:
            self.add(piece)
            yield piece

    @property
    def text(self) -> str:
        """Of what was added so far."""
        return f"{_CRC32}{self._crc32:08x}" if self._sha256 is None else _SHA256 + self._sha256.hexdigest()


def checksum(data: bytes | pa.Buffer, like: str = "") -> str:
    """SHA-256 of the bytes; CRC-32 where `like`, an expected checksum, is one."""
    return checksum_of_pieces((data,), like)


def checksum_of_pieces(pieces: Iterable[bytes | pa.Buffer], like: str = "") -> str:
    """The same for bytes that come piece by piece."""
    whole = Checksum(like)
    for piece in pieces:
        whole.add(piece)
    return whole.text


def crc32(data: bytes | pa.Buffer) -> str:
    """CRC-32 of the bytes."""
    return checksum(data, _CRC32)


def is_collision_free(text: str) -> bool:
    """True for a checksum that no other content can be made for."""
    return text.startswith(_SHA256)
