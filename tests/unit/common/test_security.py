"""The shared secret, who is admitted, and which addresses may be opened."""

from __future__ import annotations

import logging
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from lockgate_common.security import Credentials, SecurityError, load_secret
from lockgate_common.token_book import issue


def test_the_secret_is_made_once_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    path = tmp_path / "conf" / "secret"
    secret = load_secret(path, create=True)
    assert len(secret) >= 32
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert load_secret(path, create=True) == secret


def test_folders_made_for_a_secret_are_private_under_any_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        load_secret(tmp_path / "a" / "b" / "secret", create=True)
        issue(tmp_path / "c" / "d" / "tokens.json", "s" * 32, "name", ("read",), 0)
    finally:
        os.umask(before)
    made = ("a", "a/b", "c", "c/d")
    assert {name: stat.S_IMODE((tmp_path / name).stat().st_mode) for name in made} == dict.fromkeys(made, 0o700)


def test_an_existing_folder_stays_unchanged(tmp_path: Path) -> None:
    """As one for settings, in which services of other users look for theirs."""
    tmp_path.chmod(0o755)
    load_secret(tmp_path / "secret", create=True)
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_root_as_a_server_takes_no_secret_of_another_user(tmp_path: Path) -> None:
    """Who runs as root with `sudo` may have the home of somebody else, who would then run code as root."""
    path = tmp_path / "secret"
    secret = load_secret(path, create=True)
    os.chown(path, 65534, 65534)
    with pytest.raises(SecurityError, match="belongs to the user nobody, so it is not used"):
        load_secret(path, create=True)
    assert load_secret(path, create=False) == secret  # a client grants no access


def test_processes_that_start_together_agree_on_one_secret(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(lambda _: load_secret(path, create=True), range(32)))
    assert len(found) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["secret"]


def test_a_client_without_a_secret_file_has_no_secret(tmp_path: Path) -> None:
    assert load_secret(tmp_path / "none", create=False) == ""
    assert not (tmp_path / "none").exists()


def test_a_secret_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("x" * 40)
    path.chmod(0o644)
    with pytest.raises(SecurityError, match="chmod 600"):
        load_secret(path, create=False)


def test_a_short_secret_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("short")
    path.chmod(0o600)
    with pytest.raises(SecurityError, match="shorter than 16"):
        load_secret(path, create=False)


def test_only_the_right_secret_is_admitted() -> None:
    ours = Credentials("s" * 32)
    assert ours.admits(ours.metadata())
    assert not ours.admits(())
    assert not ours.admits(Credentials("t" * 32).metadata())
    assert not Credentials("").admits((("authorization", "Bearer "),))


def test_a_port_beyond_loopback_needs_tls_and_a_secret() -> None:
    server = grpc.server(ThreadPoolExecutor(1))
    with pytest.raises(SecurityError, match=r"tls\.certificate"):
        Credentials("s" * 32).bind(server, "0.0.0.0:0")
    assert Credentials("s" * 32).bind(server, "127.0.0.1:0") > 0
    server.stop(None)


def test_a_taken_port_is_one_sentence() -> None:
    first, second = (
        grpc.server(ThreadPoolExecutor(1), options=(("grpc.so_reuseport", 0),)),
        grpc.server(ThreadPoolExecutor(1), options=(("grpc.so_reuseport", 0),)),
    )
    port = Credentials().bind(first, "127.0.0.1:0")
    with pytest.raises(OSError, match="taken"):
        Credentials().bind(second, f"127.0.0.1:{port}")
    first.stop(None)
    second.stop(None)


def test_headers_of_strangers_are_not_logged_and_other_errors_are(caplog: pytest.LogCaptureFixture) -> None:
    server = grpc.server(ThreadPoolExecutor(1))
    Credentials().bind(server, "127.0.0.1:0")
    log = logging.getLogger("grpc._cython.cygrpc")  # as grpcio writes there
    log.exception("Invalid encoding on %s", b"Bearer almost the secret\xff")
    log.error("something else")
    assert [record.getMessage() for record in caplog.records] == ["something else"]
    server.stop(None)
