"""Files that decide whom to trust: read only if no one else can have written them."""

from __future__ import annotations

import os
import pwd
import stat
from pathlib import Path


class UntrustedFile(ValueError):
    """A file that another user owns, or may change or read. The message says what to do."""


def read_trusted(path: Path, *, is_secret: bool = False, is_key: bool = False, lets_in: bool = False) -> str:
    """The text of `path`. Raises UntrustedFile, OSError, UnicodeDecodeError.

    is_secret: no one else may read it either. Root reads the secrets of all users, but takes settings from none.
    is_key: a secret that root may own and give to a group, as keys of certificates are given to services.
    lets_in: who knows the secret may run code as this process's user, so root takes no other user's.
    """
    is_secret = is_secret or is_key
    with open(path, encoding="utf-8", opener=_without_waiting) as file:
        found = os.fstat(file.fileno())  # of what is read, whatever takes its name meanwhile
        if not stat.S_ISREG(found.st_mode):
            raise UntrustedFile(f"{path} is not a plain file")
        me = os.geteuid()
        if found.st_uid not in (me, 0) and not (is_secret and me == 0 and not lets_in):
            raise UntrustedFile(
                f"{path} belongs to the user {_name(found.st_uid)}, so it is not used; remove it, or make a copy of "
                "your own if you trust it"
            )
        mode = 0o640 if is_key and found.st_uid == 0 else 0o600
        if is_secret and found.st_mode & 0o077 & ~mode:
            raise UntrustedFile(f"{path} can be read by other users; run: chmod {mode:o} {path}")
        if found.st_mode & 0o022 and not _is_alone_in_group(found):
            raise UntrustedFile(f"{path} can be changed by other users; run: chmod go-w {path}")
        return file.read()


def _without_waiting(path: str, flags: int) -> int:
    """A pipe would be waited for."""
    return os.open(path, flags | os.O_NONBLOCK)


def _is_alone_in_group(found: os.stat_result) -> bool:
    """With a umask of 002, new files are writable by the user's own group, which has the user's name and number."""
    return not found.st_mode & 0o002 and found.st_gid == found.st_uid


def _name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)
