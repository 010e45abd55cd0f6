"""`lockgate certificates`."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from lockgate_common.security import TlsFiles

from lockgate.cli import run


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_an_authority_and_a_certificate_for_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["certificates", "tls"]) == 0
    said = capsys.readouterr().out
    assert {path.name for path in Path("tls").iterdir()} == {"ca.pem", "ca.key", "host.pem", "host.key"}
    for key in Path("tls").glob("*.key"):
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
    made = _read("host")
    made.verify_directly_issued_by(_read("ca"))
    names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost"]
    assert set(_usage(made)) == {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH}
    assert f"LOCKGATE_TLS_CERTIFICATE={Path('tls/host.pem').absolute()}" in said
    assert "keep it away" in said
    TlsFiles("tls/host.pem", "tls/host.key", "tls/ca.pem", mutual=True).read()


def test_more_from_the_same_authority(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["certificates", "tls", "--name", "alice", "--name", "bob", "--days", "3"]) == 0
    authority = Path("tls/ca.pem").read_bytes()
    said = capsys.readouterr().out
    assert '"alice" = "read"' in said
    assert run(["certificates", "tls", "--name", "c1", "--host", "c1.example", "--host", "10.0.0.1"]) == 0
    assert Path("tls/ca.pem").read_bytes() == authority
    alice, server = _read("alice"), _read("c1")
    assert _usage(alice) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    assert alice.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value == "alice"
    assert (alice.not_valid_after_utc - alice.not_valid_before_utc).days == 3
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["10.0.0.1"]
    for certificate in (alice, _read("bob"), server):
        certificate.verify_directly_issued_by(_read("ca"))


def test_nothing_is_overwritten_and_mistakes_are_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["certificates", "tls"]) == 0
    before = {path.name: path.read_bytes() for path in Path("tls").iterdir()}
    for arguments, sentence in (
        ((), "host.pem exists already, and nothing is overwritten"),
        (("--name", "new", "--name", "host"), "exists already"),
        (("--name", "ca"), "`ca` is taken"),
        (("--name", "../x"), "is not a valid name for a certificate"),
        (("--name", "n" * 65), "use 1 to 64 characters"),
        (("--name", "x", "--host", "ä.example"), "give the name in its DNS form"),
    ):
        assert run(["certificates", "tls", *arguments]) == 2
        assert sentence in capsys.readouterr().err
    Path("tls/ca.key").unlink()
    assert run(["certificates", "tls", "--name", "more"]) == 2
    assert "signing needs the authority's ca.pem and ca.key" in capsys.readouterr().err
    del before["ca.key"]
    assert {path.name: path.read_bytes() for path in Path("tls").iterdir()} == before


def test_a_wrong_host_is_one_sentence_and_nothing_is_made(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["certificates", "tls", "--host", "localhost", "--host", "https://c1:7070"]) == 2
    said = capsys.readouterr().err
    assert said == (
        "error: 'https://c1:7070' is not a valid host for a certificate: give only the name, without scheme and path\n"
    )
    assert not Path("tls").exists()


def test_a_cluster_on_this_machine_takes_them_from_the_settings(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given: list[dict[str, Any]] = []
    monkeypatch.setattr("lockgate_devtools.cluster.run_cluster", lambda _directory, **options: given.append(options))
    file, here = Path("lockgate.toml"), Path.cwd()
    file.write_text("[tls]\nauthority = 'ca.pem'\n")
    assert run(["cluster"]) == 0
    assert given.pop()["tls"] is None  # a client of another cluster has that
    file.write_text("[tls]\nauthority = 'ca.pem'\nmutual = true\n")
    assert run(["cluster"]) == 2
    assert "tls.mutual needs" in capsys.readouterr().err
    file.write_text(
        "[tls]\nauthority = 'ca.pem'\ncertificate = 'c.pem'\nkey = 'k'\nmutual = true\nroles = {alice = 'read'}\n"
    )
    assert run(["cluster"]) == 0
    options = given.pop()
    assert options["tls"] == TlsFiles(f"{here}/c.pem", f"{here}/k", f"{here}/ca.pem", mutual=True)
    assert options["coordinator"] == {"certificate_roles": {"alice": ("read",)}}


def _read(name: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate(Path(f"tls/{name}.pem").read_bytes())


def _usage(certificate: x509.Certificate) -> list[x509.ObjectIdentifier]:
    return list(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
