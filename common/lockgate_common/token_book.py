"""The tokens of a cluster: a file of names, roles, ends and argon2 hashes, read again when it changes."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from argon2 import PasswordHasher
from argon2.exceptions import Argon2Error, InvalidHashError

from lockgate_common import folder_lock, private_folder
from lockgate_common.json_input import parse_json
from lockgate_common.reread import RereadFile
from lockgate_common.roles import ANONYMOUS, OWNER, Principal, roles_named
from lockgate_common.token import RANDOM_BYTES, Token, check_of
from lockgate_common.trusted_files import UntrustedFile, read_trusted

_ID_BYTES = 6
_MOST_WRONG = 5  # slow checks of one token that fail, until it is quiet for a while
_WRONG_FORGOTTEN_S = 10.0
_LOCK = "tokens.lock"  # a running cluster holds the other lock of its folder
_LOCK_PATIENCE_S = 10.0
_LAST_UNIX_S = 253_402_300_799  # the end of the year 9999: later ones cannot be shown


class TokenFileError(ValueError):
    """The file cannot be used. The message is a sentence for its owner."""


@dataclass(frozen=True, slots=True)
class TokenEntry:
    """What the cluster keeps of a token. ends_unix_s: from then on it is worth nothing; 0: never."""

    token_id: str
    name: str
    roles: tuple[str, ...]
    ends_unix_s: int
    hash: str

    @property
    def principal(self) -> Principal:
        """Whom the token lets in."""
        return Principal(self.name, roles_named(self.roles))


class _Checks:
    """What one token was checked against. verified: a fast hash of what was right, empty before.

    Checks of one token wait for one another, not for those of others; and a holder who shows its own id with something
    else is soon not checked any more for a while.
    """

    def __init__(self) -> None:
        self.verified = b""
        self._lock = threading.Lock()
        self._wrong = 0
        self._wrong_s = 0.0

    def verify(self, digest: bytes, verifies: Callable[[], bool], now_s: float) -> None:
        """digest: fast hash of what is shown; verifies: the slow check of it."""
        with self._lock:
            if now_s - self._wrong_s > _WRONG_FORGOTTEN_S:
                self._wrong = 0
            if self.verified or self._wrong >= _MOST_WRONG:
                return
            if verifies():
                self.verified = digest
            else:
                self._wrong, self._wrong_s = self._wrong + 1, now_s


@dataclass(frozen=True)
class _Known:
    """What one version of the file says, by token id."""

    entries: dict[str, TokenEntry] = field(default_factory=dict)
    checks: dict[str, _Checks] = field(default_factory=dict)


class TokenBook:
    """What a server knows of tokens. Thread-safe. path: the file; it may be missing. now_s: the wall clock."""

    def __init__(self, path: Path, secret: str, now_s: Callable[[], float] = time.time) -> None:
        self._secret, self._now_s = secret, now_s
        self._lock = threading.Lock()
        self._file = RereadFile(path, _known, _Known(), "no token is accepted")
        self._hasher = PasswordHasher()

    def principal(self, token: Token) -> Principal | None:
        """The principal of a valid token; None if it is invalid now. The first call takes about 50 ms."""
        if not token.is_of(self._secret):
            return None
        with self._lock:
            known = self._file.content()
        entry = known.entries.get(token.token_id)
        if entry is None or 0 < entry.ends_unix_s <= self._now_s():
            return None
        digest = hashlib.sha256(token.random.encode()).digest()
        checks = known.checks[token.token_id]
        if not checks.verified:
            checks.verify(digest, lambda: self._verifies(entry.hash, token.random), self._now_s())
        return entry.principal if hmac.compare_digest(checks.verified, digest) else None

    def _verifies(self, hashed: str, random: str) -> bool:
        try:
            return self._hasher.verify(hashed, random)
        except (Argon2Error, InvalidHashError):
            return False


def _known(path: Path) -> _Known:
    entries = {entry.token_id: entry for entry in read_entries(path)}
    return _Known(entries, {token_id: _Checks() for token_id in entries})


def read_entries(path: Path) -> tuple[TokenEntry, ...]:
    """Every token of the file, none where it is missing. Raises TokenFileError."""
    try:
        return tuple(_entry(found) for found in parse_json(read_trusted(path, is_secret=True))["tokens"])
    except FileNotFoundError:
        return ()
    except UntrustedFile as error:
        raise TokenFileError(str(error)) from error
    except OSError as error:
        raise TokenFileError(f"cannot read the tokens in {path}: {error.strerror}") from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise TokenFileError(f"{path} is not a file of tokens: {str(error)[:200]}") from error


def _entry(found: Any) -> TokenEntry:
    """Raises ValueError, TypeError, KeyError for what is none."""
    entry = TokenEntry(**{**found, "roles": tuple(found["roles"])})
    if not all(isinstance(text, str) for text in (entry.token_id, entry.name, entry.hash, *entry.roles)):
        raise TypeError("token_id, name, hash and roles must be strings")
    if type(entry.ends_unix_s) is not int or not 0 <= entry.ends_unix_s <= _LAST_UNIX_S:
        raise ValueError(f"ends_unix_s has to be a whole number from 0 to {_LAST_UNIX_S}")
    roles_named(entry.roles)
    _check_name(entry.name)
    return entry


def _check_name(name: str) -> None:
    """Raises ValueError for a reserved name."""
    if name in (OWNER.name, ANONYMOUS.name):
        raise ValueError(f"a token cannot be named {name!r}; choose another name")


@contextmanager
def _changing(path: Path) -> Iterator[None]:
    """One change at a time, or a token that another change removes would come back. Raises TokenFileError."""
    try:
        private_folder.make_missing(path.parent)
        lock = folder_lock.take(path.parent, _LOCK_PATIENCE_S, _LOCK)
    except folder_lock.FolderInUse as error:
        raise TokenFileError(f"another command is changing the tokens in {path}; try again") from error
    except OSError as error:
        raise TokenFileError(f"cannot write the tokens to {path}: {error.strerror}") from error
    with lock:
        yield


def issue(path: Path, secret: str, name: str, roles: tuple[str, ...], ends_unix_s: int) -> Token:
    """Adds a token to the file, which is made if it is missing. Raises TokenFileError, ValueError for a wrong role."""
    roles_named(roles)
    _check_name(name)
    token_id = secrets.token_hex(_ID_BYTES)
    token = Token(token_id, secrets.token_hex(RANDOM_BYTES), check_of(secret, token_id))
    added = TokenEntry(token_id, name, roles, ends_unix_s, PasswordHasher().hash(token.random))
    with _changing(path):
        entries = read_entries(path)
        if any(entry.name == name for entry in entries):
            raise TokenFileError(f"there is a token named {name!r} already; remove it first or choose another name")
        _write(path, (*entries, added))
    return token


def remove(path: Path, name: str) -> bool:
    """Takes a token out of the file. False when there is none of that name. Raises TokenFileError."""
    with _changing(path):
        entries = read_entries(path)
        kept = tuple(entry for entry in entries if entry.name != name)
        if len(kept) < len(entries):
            _write(path, kept)
    return len(kept) < len(entries)


def _write(path: Path, entries: tuple[TokenEntry, ...]) -> None:
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    text = json.dumps({"tokens": [asdict(entry) for entry in entries]}, indent=2) + "\n"
    try:
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except OSError as error:
        raise TokenFileError(f"cannot write the tokens to {path}: {error.strerror}") from error
    finally:
        fresh.unlink(missing_ok=True)
