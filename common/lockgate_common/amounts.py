"""Numbers as people read them."""

from __future__ import annotations

from collections.abc import Sequence


def size_text(count: int) -> str:
    """Bytes: `920 B`, `8.5 KiB`, `3.0 MiB`."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def listed(names: Sequence[str], most: int = 5) -> str:
    """`a, b and 3 more`: with thousands of subtasks a sentence does not name them all."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def counted(count: int, noun: str) -> str:
    """`1 restart`, `2 restarts`; noun: one that takes an s."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
