"""TLS files that cannot work, and what is said of a connection that failed because of certificates."""

from __future__ import annotations

import contextlib
import errno
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from lockgate_common import reread
from lockgate_common.certificates import make_authority
from lockgate_common.security import Credentials, SecurityError, TlsFiles
from lockgate_common.tls import Pem, handshake_problem

from tests.certificates import early_certificate, make_certificates

NO_ONE = "failed to connect to all addresses; last error: UNAVAILABLE: ipv4:127.0.0.1:1: "


@pytest.mark.parametrize(
    ("files", "is_server", "sentence"),
    [
        (TlsFiles(mutual=True), False, r"tls\.mutual needs .* set tls\.certificate \(or LOCKGATE_TLS_CERTIFICATE\)"),
        (TlsFiles("c", authority="a", mutual=True), True, r"tls\.mutual needs .* set tls\.key"),
        (TlsFiles("c", "k", mutual=True), True, r"tls\.mutual needs .* set tls\.authority"),
        (TlsFiles(authority="a"), True, r"a server with TLS needs .* set tls\.certificate"),
        (TlsFiles("c", "k"), False, r"needs an authority to trust: set tls\.authority"),
        (TlsFiles("c", authority="a"), False, r"needs its key: set tls\.key"),
        (TlsFiles("", "k", "a"), False, r"needs its key: set tls\.certificate"),
    ],
)
def test_a_missing_file_is_named_by_its_setting(files: TlsFiles, is_server: bool, sentence: str) -> None:
    with pytest.raises(SecurityError, match=sentence):
        files.check(is_server=is_server)


def test_a_client_needs_the_authority_alone_and_a_server_all() -> None:
    TlsFiles(authority="a").check()
    TlsFiles("c", "k", "a", mutual=True).check(is_server=True)


def test_a_port_does_not_open_with_files_that_do_not_fit(tmp_path: Path) -> None:
    one, other = make_certificates(tmp_path, "one"), make_certificates(tmp_path, "other")
    Path(one.certificate).chmod(0o600)  # it is given as a key
    server = grpc.server(ThreadPoolExecutor(1))
    for files, sentence in (
        (replace(one, key=other.key), "does not belong to the certificate"),
        (replace(one, key=one.certificate), "is incomplete, or not PEM"),
        (replace(one, authority=one.key), "is incomplete, or not PEM"),
        (replace(one, key=str(tmp_path / "none")), "cannot read the TLS file"),
        (replace(one, certificate="", key=""), r"set tls\.certificate"),
    ):
        with pytest.raises(SecurityError, match=sentence):
            Credentials(tls=files).bind(server, "127.0.0.1:0")
    server.stop(None)


def test_a_new_edition_requires_new_files(tmp_path: Path) -> None:
    files, new = make_certificates(tmp_path, "one"), make_certificates(tmp_path, "new")
    credentials = Credentials(tls=files)
    first = credentials.edition()
    assert credentials.edition() is first
    Path(files.key).write_bytes(Path(new.key).read_bytes())
    assert credentials.edition() is first
    Path(files.certificate).unlink()
    assert credentials.edition() is first
    Path(files.certificate).write_bytes(Path(new.certificate).read_bytes())
    assert credentials.edition() is not first
    assert Credentials().edition() is None


def test_a_certificate_that_has_ended_does_not_take_the_place_of_one_that_counts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = make_authority(tmp_path, "authority")
    files = authority.issue(tmp_path, "one", (), 30)
    credentials = Credentials(tls=files)
    first = credentials.edition()
    late = authority.issue(tmp_path, "late", (), 0)
    for old, new in ((files.key, late.key), (files.certificate, late.certificate)):
        Path(old).write_bytes(Path(new).read_bytes())
    assert credentials.edition() is first
    assert "has expired" in caplog.text


def put(files: TlsFiles, new: TlsFiles) -> None:
    """The content of other files."""
    for name in ("key", "certificate"):
        Path(getattr(files, name)).write_bytes(Path(getattr(new, name)).read_bytes())


def test_a_certificate_is_used_once_it_is_valid(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is renewed ahead of time, or by a machine whose clock is ahead."""
    monkeypatch.setattr(reread, "AGAIN_MS", 0)
    files = make_certificates(tmp_path, "one")
    credentials = Credentials(tls=files)
    first = credentials.edition()
    put(files, early_certificate(tmp_path, "early"))
    assert credentials.edition() is first
    assert "is valid from" in caplog.text
    monkeypatch.setattr(Pem, "why_not_now", lambda _: "")
    assert credentials.edition() is not first


def test_new_files_that_could_not_be_read_once_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process may have had no file descriptor left."""
    monkeypatch.setattr(reread, "AGAIN_MS", 0)
    files, new = make_certificates(tmp_path, "one"), make_certificates(tmp_path, "new")
    credentials = Credentials(tls=files)
    first = credentials.edition()
    put(files, new)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_bytes", no_descriptor)
        assert credentials.edition() is first
    assert credentials.edition() is not first


def no_descriptor(path: Path) -> bytes:
    raise OSError(errno.EMFILE, "Too many open files", str(path))


class SlowLink:
    """A way to a server on which every connection waits a second before its first byte goes through."""

    def __init__(self, port: int) -> None:
        self._target = ("127.0.0.1", port)
        self._over = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near = self._listener.accept()[0]
                threading.Thread(target=self._carry, args=(near,), daemon=True).start()

    def _carry(self, near: socket.socket) -> None:
        self._over.wait(1.0)
        with contextlib.suppress(OSError), near, socket.create_connection(self._target) as far:
            threading.Thread(target=_pump, args=(far, near), daemon=True).start()
            _pump(near, far)

    def close(self) -> None:
        self._over.set()
        self._listener.close()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65_536):
            target.sendall(data)
        target.shutdown(socket.SHUT_RDWR)


def test_a_handshake_may_take_its_time(tmp_path: Path) -> None:
    """An attempt that ends after the pause between two of them, which is shorter, would never come through."""
    credentials = Credentials(tls=replace(make_certificates(tmp_path), mutual=True))
    server = grpc.server(ThreadPoolExecutor(1))
    link = SlowLink(credentials.bind(server, "127.0.0.1:0"))
    server.start()
    with credentials.channel(link.address) as channel:
        grpc.channel_ready_future(channel).result(60)
    link.close()
    server.stop(None).wait()


@pytest.mark.parametrize(
    ("details", "tls", "sentence"),
    [
        (f"{NO_ONE}Socket closed", None, "LOCKGATE_TLS_AUTHORITY"),
        (f"{NO_ONE}Socket closed", TlsFiles(authority="a"), "for clients without a certificate"),
        (f"{NO_ONE}Socket closed", TlsFiles("mine.pem", "k", "a"), "has not signed the certificate mine.pem"),
        (f"{NO_ONE}CERTIFICATE_VERIFY_FAILED: x", TlsFiles(authority="ca.pem"), "not of the authority ca.pem"),
        (f"{NO_ONE}Hostname Verification Check failed", TlsFiles(authority="a"), "not for this address"),
        (f"{NO_ONE}WRONG_VERSION_NUMBER", TlsFiles(authority="a"), "does not speak TLS"),
    ],
)
def test_a_failed_handshake_is_explained(details: str, tls: TlsFiles | None, sentence: str) -> None:
    assert sentence in handshake_problem(details, tls)


@pytest.mark.parametrize("details", [f"{NO_ONE}Connection refused", "Socket closed", "GOAWAY received", ""])
def test_any_other_failure_is_left_as_it_is(details: str) -> None:
    assert handshake_problem(details, TlsFiles(authority="a")) == ""
    assert handshake_problem(details, None) == ""
