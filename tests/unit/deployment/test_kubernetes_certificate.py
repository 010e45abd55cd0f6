"""The commands of docs/kubernetes.md make a certificate that fits every name that pods and probes connect to."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
import yaml
from lockgate_common.security import Credentials, TlsFiles, load_secret
from lockgate_devtools.zookeeper.tls import check as check_server

from tests.unit.deployment.handshakes import connects
from tests.unit.deployment.manifests import ROOT, block, documents, pods

PAGE = (ROOT / "docs/kubernetes.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the documented commands were run."""
    if not shutil.which("openssl"):
        pytest.skip("there is no openssl on this machine, which the documented commands need")
    folder = tmp_path_factory.mktemp("made")
    subprocess.run(["bash", "-ec", block(PAGE, "sh")], cwd=folder, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def port(made: Path) -> Iterator[int]:
    """A TLS server with that certificate, as Lockgate's servers are."""
    files = TlsFiles(str(made / "tls.crt"), str(made / "tls.key"), str(made / "ca.crt"))
    server = grpc.server(ThreadPoolExecutor(1))
    bound = Credentials(load_secret(made / "secret", create=False), files).bind(server, "127.0.0.1:0")
    server.start()
    yield bound
    server.stop(None).wait()


def _accepts(port: int, name: str, authority: Path) -> bool:
    """Whether a client that asked for `name` is content with the server's certificate."""
    credentials = grpc.ssl_channel_credentials(root_certificates=authority.read_bytes())
    options = [("grpc.ssl_target_name_override", name)]
    with grpc.secure_channel(f"127.0.0.1:{port}", credentials, options) as channel:
        call = channel.unary_unary("/nobody/Home", _registered_method=False)
        with pytest.raises(grpc.RpcError) as caught:
            call(b"", timeout=120)
    code, details = caught.value.code(), caught.value.details()
    # With a connection the server says that it has no such method; without one the reason is the name.
    assert code is grpc.StatusCode.UNIMPLEMENTED or "Hostname Verification" in details, details
    return code is grpc.StatusCode.UNIMPLEMENTED


NAMES = [
    *(pod.domain for pod in pods()),
    *(f"taskmanager-{number}.taskmanager.lockgate.svc" for number in (9, 99)),  # after scaling
    *(name for name in ("lockgate", "lockgate.lockgate.svc") if "Service/lockgate" in documents()),
    "localhost",
    "127.0.0.1",
]


@pytest.mark.integration
@pytest.mark.parametrize("name", NAMES)
def test_the_certificate_fits(name: str, port: int, made: Path) -> None:
    assert _accepts(port, name, made / "ca.crt")


@pytest.mark.integration
@pytest.mark.parametrize("name", ["zookeeper-1.zookeeper", "coordinator.lockgate.svc", "127.0.0.2"])
def test_the_certificate_fits_nothing_else(name: str, port: int, made: Path) -> None:
    assert not _accepts(port, name, made / "ca.crt")


@pytest.mark.integration
def test_the_certificate_serves_both_sides(made: Path) -> None:
    """As pods use it when `mutual` is true: between each other and in probes."""
    mutual = TlsFiles(str(made / "tls.crt"), str(made / "tls.key"), str(made / "ca.crt"), mutual=True)
    assert connects(mutual, mutual)


def test_the_secret_is_one_that_lockgate_takes(made: Path) -> None:
    assert len(load_secret(made / "secret", create=False)) == 64


def test_cert_manager_issues_the_same_names() -> None:
    certificate = yaml.safe_load(block(PAGE, "yaml", "cert-manager"))["spec"]
    asked = {f"DNS:{name}" for name in certificate["dnsNames"]} | {
        f"IP:{ip_address}" for ip_address in certificate["ipAddresses"]
    }
    (named,) = re.findall(r'subjectAltName=((?:.|\n)*?)"', block(PAGE, "sh"))
    assert asked == set(named.replace("\\\n", "").split(","))
    assert certificate["secretName"] == "lockgate-tls"


def test_both_ways_make_a_key_that_zookeeper_reads(made: Path) -> None:
    assert yaml.safe_load(block(PAGE, "yaml", "cert-manager"))["spec"]["privateKey"]["encoding"] == "PKCS8"
    check_server(TlsFiles(str(made / "tls.crt"), str(made / "tls.key"), str(made / "ca.crt")))
