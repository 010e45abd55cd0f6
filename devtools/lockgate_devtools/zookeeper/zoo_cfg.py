"""`zoo.cfg`: how Java reads it, and what it says about the data beside it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from lockgate_ha.errors import ZooKeeperStartError

NAME = "zoo.cfg"
_DATA = "version-2"  # where ZooKeeper keeps its log and snapshots


def write(data_dir: Path, settings: Mapping[str, object]) -> Path:
    """Replaces the file in one step, since it is also the record of `check_number`. Returns its path.

    Raises OSError, and ZooKeeperStartError for a value that Java cannot read.
    """
    path, fresh = data_dir / NAME, data_dir / f".{NAME}"
    lines = [f"{key}={_escaped(str(value))}\n" for key, value in settings.items()]
    fresh.write_text("".join(lines), encoding="ascii")
    return fresh.replace(path)


def check_number(folders: Iterable[Path], wanted: int) -> None:
    """Raises ZooKeeperStartError where `wanted` servers could lose the data of another number of them.

    folders: of all servers there may be. The first one with data decides: others may be left from a try with more.
    Servers without data would outvote the one that has it, and a single one of three may lack the last writes.
    """
    for folder in folders:
        found = _number(folder)
        if found == wanted:
            return
        if found:
            raise ZooKeeperStartError(
                f"{folder} has the data of {found} ZooKeeper server{'s' if found > 1 else ''}, which {wanted} could "
                f"lose: start {found} again, or choose another folder with --dir"
            )


def _number(folder: Path) -> int:
    """With how many servers the one in the folder was started last; 0 for none, or none with data."""
    try:
        text = (folder / NAME).read_text(encoding="latin-1")
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise ZooKeeperStartError(f"cannot read {folder / NAME}: {error.strerror}") from error
    if not text or not (folder / _DATA).is_dir():
        return 0
    return max(1, sum(line.startswith("server.") for line in text.splitlines()))


def _escaped(value: str) -> str:
    """As java.util.Properties reads it back, which takes the file for Latin-1 and skips spaces before a value."""
    try:
        units = value.encode("utf-16-be")
    except UnicodeEncodeError as error:
        raise ZooKeeperStartError(f"ZooKeeper cannot use {value!r}: the name is not UTF-8") from error
    codes = (high << 8 | low for high, low in zip(units[::2], units[1::2], strict=True))
    return "".join(chr(code) if " " < chr(code) <= "~" and chr(code) != "\\" else f"\\u{code:04x}" for code in codes)
