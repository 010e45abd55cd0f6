"""A ZooKeeper server's side of TLS: its key and certificate in one file, as it wants them, and its settings."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from lockgate_common import private_folder
from lockgate_common.tls import SecurityError, TlsFiles, client_context, read_key, read_tls_file
from lockgate_ha.errors import ZooKeeperStartError

_FOLDER = "tls"


def check(files: TlsFiles) -> None:
    """Raises ZooKeeperStartError for files that a server cannot use."""
    if not (files.certificate and files.key):
        raise ZooKeeperStartError(
            "a ZooKeeper server with TLS needs a certificate and a key: set zookeeper.certificate and zookeeper.key, "
            "or tls.certificate and tls.key"
        )
    try:
        client_context(files)
        if b"-----BEGIN PRIVATE KEY-----" not in read_key(files.key):
            raise ZooKeeperStartError(
                f"ZooKeeper reads keys in PKCS#8 only, and {files.key} is in another format; convert it: openssl pkcs8 "
                f"-topk8 -nocrypt -in {files.key} -out NEW"
            )
    except SecurityError as error:
        raise ZooKeeperStartError(str(error)) from error


def write_files(data_dir: Path, files: TlsFiles | None) -> None:
    """The server's key and certificates for this start, where only this user gets at them. Raises OSError."""
    folder = data_dir / _FOLDER
    shutil.rmtree(folder, ignore_errors=True)
    if files is None:
        return
    private_folder.make(folder)
    content = read_key(files.key) + b"\n" + read_tls_file(files.certificate)
    with open(os.open(_pem(data_dir), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)


def settings(data_dir: Path, files: TlsFiles, *, is_member: bool) -> dict[str, object]:
    """Of its configuration: for clients, and for the other servers if it is one of an ensemble.

    All show certificates of the authority. Clients check the host, too; servers among themselves do not, as ZooKeeper
    has it unless its FIPS mode is switched off.
    """
    found = {"serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory"}
    found |= _stores("ssl", data_dir, files)
    return {**found, "sslQuorum": "true", **_stores("ssl.quorum", data_dir, files)} if is_member else {**found}


def _stores(side: str, data_dir: Path, files: TlsFiles) -> dict[str, str]:
    return {
        f"{side}.keyStore.location": str(_pem(data_dir)),
        f"{side}.keyStore.type": "PEM",
        f"{side}.trustStore.location": files.authority,
        f"{side}.trustStore.type": "PEM",
        f"{side}.clientAuth": "need",
    }


def _pem(data_dir: Path) -> Path:
    return data_dir / _FOLDER / "server.pem"
