"""Tokens: what is kept of them, who is let in by them, and how often the slow hash is made."""

from __future__ import annotations

import errno
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from argon2 import PasswordHasher
from lockgate_common import folder_lock, reread, token_book, trusted_files
from lockgate_common.roles import ANONYMOUS, OWNER, Principal, Role, roles_named
from lockgate_common.token import Token, check_of, parse_token
from lockgate_common.token_book import TokenBook, TokenEntry, TokenFileError, issue, read_entries, remove

SECRET = "a secret that is long enough"


@pytest.fixture(autouse=True)
def slow_hashes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Cheap ones for the test; every verification is noted."""
    made: list[str] = []

    class Noting(PasswordHasher):
        def __init__(self) -> None:
            super().__init__(time_cost=1, memory_cost=8, parallelism=1)

        def verify(self, hash: str | bytes, password: str | bytes) -> bool:
            made.append(str(password))
            return super().verify(hash, password)

    monkeypatch.setattr(token_book, "PasswordHasher", Noting)
    return made


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tokens.json"


def test_only_a_hash_is_kept(path: Path) -> None:
    token = issue(path, SECRET, "me", ("read",), 0)
    text = path.read_text()
    assert token.random not in text
    assert token.check not in text
    assert json.loads(text)["tokens"][0]["hash"].startswith("$argon2id$")
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_token_grants_access_until_it_expires(path: Path) -> None:
    now = [1_000.0]
    book = TokenBook(path, SECRET, lambda: now[0])
    token = issue(path, SECRET, "me", ("submit", "operate"), 2_000)
    assert book.principal(token) == Principal("me", frozenset({Role.SUBMIT, Role.OPERATE}))
    now[0] = 1_999.9
    assert book.principal(token) is not None
    now[0] = 2_000.0
    assert book.principal(token) is None


def test_the_slow_hash_is_made_once_and_never_for_strangers(path: Path, slow_hashes: list[str]) -> None:
    book, token = TokenBook(path, SECRET), issue(path, SECRET, "me", ("read",), 0)
    for _ in range(5):
        assert book.principal(token) is not None
    assert slow_hashes == [token.random]
    assert book.principal(Token(token.token_id, token.random, "0" * 64)) is None
    assert book.principal(Token("unknown", token.random, check_of(SECRET, "unknown"))) is None
    assert slow_hashes == [token.random]
    assert book.principal(Token(token.token_id, "1" * 64, token.check)) is None


def test_wrong_tries_with_a_known_id_cost_a_few_slow_hashes_and_no_one_else_waits(
    path: Path, slow_hashes: list[str]
) -> None:
    now = [1_000.0]
    book, mine = TokenBook(path, SECRET, lambda: now[0]), issue(path, SECRET, "mine", ("read",), 0)
    wrong = Token(mine.token_id, "1" * 64, mine.check)
    for _ in range(100):
        assert book.principal(wrong) is None
    assert len(slow_hashes) == 5
    assert book.principal(mine) is None, "its holder tried too much, and waits"
    now[0] += 11
    assert book.principal(mine) is not None
    for _ in range(100):
        assert book.principal(wrong) is None
        assert book.principal(mine) is not None
    assert len(slow_hashes) == 6


def test_a_slow_check_of_one_token_delays_no_other(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow, other = (issue(path, SECRET, name, ("read",), 0) for name in ("slow", "other"))
    book, checked, go_on = TokenBook(path, SECRET), threading.Event(), threading.Event()
    verifies = book._verifies

    def waiting(hashed: str, random: str) -> bool:
        if random == slow.random:
            checked.set()
            assert go_on.wait(60)
        return verifies(hashed, random)

    monkeypatch.setattr(book, "_verifies", waiting)
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(book.principal, slow)
        assert checked.wait(60)
        assert book.principal(other) is not None
        go_on.set()
        assert found.result(60) is not None


@pytest.mark.parametrize("name", [OWNER.name, ANONYMOUS.name])
def test_no_token_has_the_name_of_the_owner(path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="a token cannot be named"):
        issue(path, SECRET, name, ("read",), 0)
    token = issue(path, SECRET, "me", ("admin",), 0)
    path.write_text(path.read_text().replace('"me"', f'"{name}"'))
    assert TokenBook(path, SECRET).principal(token) is None


def test_changes_of_the_file_wait_for_one_another(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    issue(path, SECRET, "leaver", ("admin",), 0)
    read, begun, go_on = token_book.read_entries, threading.Event(), threading.Event()

    def slowly(file: Path) -> tuple[TokenEntry, ...]:
        found = read(file)
        if threading.current_thread() is not threading.main_thread():
            begun.set()
            assert go_on.wait(60)
        return found

    monkeypatch.setattr(token_book, "read_entries", slowly)
    with ThreadPoolExecutor(2) as pool:
        made = pool.submit(issue, path, SECRET, "new", ("read",), 0)
        assert begun.wait(60)
        removed = pool.submit(remove, path, "leaver")
        go_on.set()
        assert removed.result(60)
        made.result(60)
    assert [entry.name for entry in read(path)] == ["new"]


def test_the_file_is_read_again_when_it_changes(path: Path) -> None:
    book = TokenBook(path, SECRET)
    first = issue(path, SECRET, "first", ("read",), 0)
    assert book.principal(first) is not None
    second = issue(path, SECRET, "second", ("admin",), 0)
    assert book.principal(second) is not None
    assert remove(path, "first")
    assert book.principal(first) is None
    assert book.principal(second) is not None
    assert not remove(path, "first")


def test_a_file_that_could_not_be_read_once_is_read_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process may have had no file descriptor left. Meanwhile no token is accepted: one may have been removed."""
    monkeypatch.setattr(reread, "AGAIN_MS", 0)
    book, token = TokenBook(path, SECRET), issue(path, SECRET, "me", ("read",), 0)
    assert book.principal(token) is not None
    issue(path, SECRET, "other", ("read",), 0)
    with monkeypatch.context() as patched:
        patched.setattr(trusted_files.os, "open", no_descriptor)
        assert book.principal(token) is None
    assert book.principal(token) is not None


def no_descriptor(*_: object, **__: object) -> int:
    raise OSError(errno.EMFILE, "Too many open files")


@pytest.mark.parametrize("content", ["{", "[]", '{"tokens": [{"name": "x"}]}'])
def test_an_unreadable_file_admits_no_caller(path: Path, content: str) -> None:
    book, token = TokenBook(path, SECRET), issue(path, SECRET, "me", ("read",), 0)
    assert book.principal(token) is not None
    path.write_text(content)
    assert book.principal(token) is None
    with pytest.raises(TokenFileError, match="not a file of tokens"):
        read_entries(path)


def test_a_file_that_others_can_read_admits_no_caller(path: Path) -> None:
    book, token = TokenBook(path, SECRET), issue(path, SECRET, "me", ("read",), 0)
    path.chmod(0o644)
    assert book.principal(token) is None


def test_names_are_used_once_and_roles_are_known(path: Path) -> None:
    issue(path, SECRET, "me", ("read",), 0)
    with pytest.raises(TokenFileError, match="already"):
        issue(path, SECRET, "me", ("read",), 0)
    with pytest.raises(ValueError, match="'root' is not a role; valid roles are read, submit"):
        issue(path, SECRET, "you", ("root",), 0)


@pytest.mark.parametrize(
    "text", ["", "lockgate", "lockgate.a.b", "lockgate.a.zz.b", f"other.a.{'0' * 64}.b", "a.b.c.d"]
)
def test_invalid_tokens(text: str) -> None:
    assert parse_token(text) is None


def test_a_token_survives_being_written(path: Path) -> None:
    token = issue(path, SECRET, "me", ("read",), 0)
    assert parse_token(f"{token}\n") == token


@pytest.mark.parametrize(
    ("role", "may"),
    [
        ("read", {"read"}),
        ("submit", {"read", "submit"}),
        ("code", {"read", "submit", "code"}),
        ("operate", {"read", "operate"}),
        ("admin", {"read", "submit", "code", "operate", "admin"}),
    ],
)
def test_roles_include_others(role: str, may: set[str]) -> None:
    principal = Principal("me", roles_named([role]))
    assert {wanted.value for wanted in Role if principal.may(wanted)} == may
    assert all(OWNER.may(wanted) for wanted in Role)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("token_id", ["a list"]),
        ("token_id", None),
        ("name", {}),
        ("hash", 7),
        ("roles", [["read"]]),
        ("roles", "read"),
        ("ends_unix_s", "soon"),
        ("ends_unix_s", True),
        ("ends_unix_s", -1),
        ("ends_unix_s", 10**30),
        ("one more", 1),
    ],
)
def test_with_a_file_that_says_something_impossible_no_token_is_valid(path: Path, field: str, value: object) -> None:
    token = issue(path, SECRET, "me", ("read",), 0)
    content = json.loads(path.read_text())
    content["tokens"][0][field] = value
    path.write_text(json.dumps(content))
    with pytest.raises(TokenFileError, match="is not a file of tokens"):
        read_entries(path)
    assert TokenBook(path, SECRET).principal(token) is None


def test_a_deeply_nested_file_is_not_a_file_of_tokens(path: Path) -> None:
    path.write_text('{"tokens": ' + "[" * 100_000 + "]" * 100_000 + "}")
    path.chmod(0o600)
    with pytest.raises(TokenFileError, match="nested more than 200 levels deep"):
        read_entries(path)


@pytest.mark.slow
def test_tokens_of_a_running_cluster_can_be_made_in_its_own_folder(path: Path) -> None:
    with folder_lock.take(path.parent):  # as the cluster does
        issue(path, SECRET, "me", ("read",), 0)
    with folder_lock.take(path.parent, name="tokens.lock"), pytest.raises(TokenFileError, match="another command"):
        issue(path, SECRET, "you", ("read",), 0)
