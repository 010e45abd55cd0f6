"""The difference between two versions of a value, as `zstd --patch-from` makes it: the old one is a raw dictionary.

    old, new --difference--> bytes that can be decoded only with the old version
    old, those bytes --applied--> new

A difference is a zstd frame whose checksum is that of the new version. `mark` identifies the old version.
"""

from __future__ import annotations

import zlib

import zstandard

LEAST_BYTES = 1024
"""Of both forms: of shorter values there is little to save, and each difference costs some 25 us, whatever its size."""

MOST_SHARE = 0.5
"""Of the new form: a difference that is larger does not pay, because a restore needs the old form as well."""

_LARGE_BYTES = 8 << 20  # the tables of zstd's faster strategies reach 16 MiB back, and no further
_MOST_TABLE_LOG = 27
_MOST_WINDOW_LOG = 31


def difference(old: bytes, new: bytes) -> bytes | None:
    """The difference from `old` to `new`; None when it does not pay."""
    if min(len(old), len(new)) < LEAST_BYTES:
        return None
    base = zstandard.ZstdCompressionDict(old, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
    compressor = zstandard.ZstdCompressor(dict_data=base, compression_params=_parameters(max(len(old), len(new))))
    made = compressor.compress(new)
    return made if len(made) <= MOST_SHARE * len(new) else None


def applied(old: bytes, made: bytes) -> bytes:
    """The new version. Raises ValueError when `old` is not the base of the difference, or the difference is damaged."""
    base = zstandard.ZstdCompressionDict(old, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
    decompressor = zstandard.ZstdDecompressor(dict_data=base, max_window_size=1 << _MOST_WINDOW_LOG)
    try:
        return decompressor.decompress(made)
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from error


def mark(value: bytes) -> int:
    """Length and CRC-32 of a value, as one number of 63 bits, to verify the base of a difference."""
    return len(value) << 32 | zlib.crc32(value)


def _parameters(size: int) -> zstandard.ZstdCompressionParameters:
    """A window that covers the whole old version: zstd's default levels look back only a few 100 kB."""
    log = size.bit_length()
    is_large = size > _LARGE_BYTES
    return zstandard.ZstdCompressionParameters(
        strategy=zstandard.STRATEGY_GREEDY if is_large else zstandard.STRATEGY_DFAST,
        window_log=min(max(log, zstandard.WINDOWLOG_MIN), _MOST_WINDOW_LOG),
        hash_log=min(max(log - 1 if is_large else log - 2, zstandard.HASHLOG_MIN), _MOST_TABLE_LOG),
        chain_log=min(max(log - 2 if is_large else log - 3, zstandard.CHAINLOG_MIN), _MOST_TABLE_LOG),
        search_log=1,
        min_match=6,
        write_checksum=True,
        write_content_size=True,
    )
