"""What is said of TLS files that cannot be used."""

from __future__ import annotations

import ssl
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from lockgate_common.certificates import load_authority
from lockgate_common.tls import SecurityError, TlsFiles, client_context
from lockgate_devtools.zookeeper.tls import check as check_server
from lockgate_ha.errors import ZooKeeperStartError

from tests.certificates import make_certificates


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


def test_only_the_authority_is_trusted_and_host_names_are_checked(files: TlsFiles) -> None:
    context = client_context(files)
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert len(context.get_ca_certs()) == 1
    assert len(client_context(TlsFiles(authority=files.authority)).get_ca_certs()) == 1


@pytest.mark.parametrize("part", ["certificate", "key", "authority"])
def test_a_file_that_is_missing_is_named(files: TlsFiles, part: str) -> None:
    with pytest.raises(SecurityError, match=r"cannot read the TLS file '/nowhere/x\.pem': No such file"):
        client_context(replace(files, **{part: "/nowhere/x.pem"}))


def test_an_authority_that_is_not_a_certificate_is_named(files: TlsFiles) -> None:
    with pytest.raises(SecurityError, match=r"server\.key contains no PEM certificate of an authority"):
        client_context(replace(files, authority=files.key))


def test_the_key_of_another_certificate_is_refused(files: TlsFiles, tmp_path: Path) -> None:
    other = make_certificates(tmp_path)
    with pytest.raises(SecurityError, match="are not a certificate and its key"):
        client_context(replace(files, key=other.key))


@pytest.mark.parametrize("mode", [0o644, 0o666])
def test_a_key_that_others_can_read_is_refused_until_they_cannot(tmp_path: Path, mode: int) -> None:
    """For connections to ZooKeeper, for those of gRPC, by ZooKeeper's own servers, and for signing."""
    files = make_certificates(tmp_path)
    Path(files.key).chmod(mode)
    refusal = rf"^the key {files.key} can be read by other users; run: chmod 6.0 {files.key}$"
    with pytest.raises(SecurityError, match=refusal):
        client_context(files)
    with pytest.raises(SecurityError, match=refusal):
        files.read()
    with pytest.raises(ZooKeeperStartError, match=refusal):
        check_server(files)
    Path(files.key).chmod(0o600)
    files.read()
    (tmp_path / "ca.key").chmod(mode)
    with pytest.raises(SecurityError, match=r"the key .*ca\.key can be read by other users"):
        load_authority(tmp_path)


def test_a_key_that_others_can_read_does_not_take_the_place_of_one_in_use(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = make_certificates(tmp_path)
    before = files.read()
    Path(files.key).chmod(0o644)
    assert files.read() is before
    assert "the previous ones stay in use: the key" in caplog.text


def test_a_key_with_a_password_prompts_no_one(files: TlsFiles, tmp_path: Path) -> None:
    locked = str(tmp_path / "locked.pem")
    words = ["openssl", "pkcs8", "-topk8", "-in", files.key, "-out", locked, "-passout", "pass:word"]
    subprocess.run(words, check=True, capture_output=True)
    Path(locked).chmod(0o600)
    with pytest.raises(SecurityError, match="the key without a password"):
        client_context(replace(files, key=locked))
