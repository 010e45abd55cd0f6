"""What a ZooKeeper server with TLS is given, and what is refused before it starts."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from lockgate_common.tls import TlsFiles
from lockgate_devtools.zookeeper import tls
from lockgate_ha.errors import ZooKeeperStartError

from tests.certificates import make_certificates


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


def test_a_server_needs_its_own_certificate(files: TlsFiles) -> None:
    with pytest.raises(ZooKeeperStartError, match=r"needs a certificate and a key: set zookeeper\.certificate"):
        tls.check(TlsFiles(authority=files.authority))


def test_a_file_that_is_missing_is_named(files: TlsFiles) -> None:
    with pytest.raises(ZooKeeperStartError, match="cannot read the TLS file '/nowhere'"):
        tls.check(replace(files, authority="/nowhere"))


def test_a_key_in_a_format_that_zookeeper_cannot_read_is_refused_with_the_remedy(
    files: TlsFiles, tmp_path: Path
) -> None:
    old = str(tmp_path / "old.pem")
    subprocess.run(["openssl", "ec", "-in", files.key, "-out", old], check=True, capture_output=True)
    with pytest.raises(ZooKeeperStartError, match=rf"openssl pkcs8 -topk8 -nocrypt -in {old} -out NEW"):
        tls.check(replace(files, key=old))
    tls.check(files)


def test_the_key_is_in_a_private_folder_and_removed_without_tls(files: TlsFiles, tmp_path: Path) -> None:
    for _ in range(2):  # a restart writes it again
        tls.write_files(tmp_path, files)
    written = tmp_path / "tls" / "server.pem"
    assert written.read_text() == f"{Path(files.key).read_text()}\n{Path(files.certificate).read_text()}"
    assert (written.stat().st_mode & 0o777, written.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    tls.write_files(tmp_path, None)
    assert not written.parent.exists()


def test_certificates_are_demanded_of_clients_and_in_an_ensemble_of_servers(files: TlsFiles, tmp_path: Path) -> None:
    single, member = (tls.settings(tmp_path, files, is_member=is_member) for is_member in (False, True))
    assert single["ssl.clientAuth"] == "need"
    assert not [key for key in single if "quorum" in key.lower()]
    assert {"sslQuorum": "true", "ssl.quorum.clientAuth": "need", **single}.items() <= member.items()
