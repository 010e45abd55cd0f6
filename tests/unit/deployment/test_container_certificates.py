"""The scripts of the image make certificates for both sides; `lockgate certificates` goes on with their authority."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from lockgate_common.security import TlsFiles

from lockgate.cli import run
from tests.unit.deployment.handshakes import connects
from tests.unit.deployment.manifests import ROOT

pytestmark = pytest.mark.integration


@pytest.mark.skipif(not shutil.which("openssl"), reason="there is no openssl on this machine, which the image has")
def test_containers_and_clients_connect_with_certificates_of_one_authority(tmp_path: Path) -> None:
    credentials, own = tmp_path / "credentials", tmp_path / "own"
    for command in (["lockgate-credentials", credentials], ["lockgate-certificate", credentials, own]):
        subprocess.run(["sh", ROOT / "docker/bin" / command[0], *command[1:]], check=True, capture_output=True)
    authority = str(credentials / "ca.pem")
    container = TlsFiles(str(own / "host.pem"), str(own / "host.key"), authority, mutual=True)
    assert run(["certificates", str(credentials), "--name", "me"]) == 0
    client = TlsFiles(str(credentials / "me.pem"), str(credentials / "me.key"), authority, mutual=True)
    assert connects(container, container)
    assert connects(container, client)
    assert not connects(container, TlsFiles(authority=authority))
    assert not connects(client, container), "a client's certificate is none of a server"
