"""JWTs of an issuer: which let whom in, which are nothing, and the file of keys."""

from __future__ import annotations

import base64
import importlib.util
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jwt
import pytest
from lockgate_common.roles import Principal, Role
from lockgate_common.settings import SettingsError
from lockgate_coordinator.runtime.jwt_issuer import JwtIssuer, KeyFileError, read_keys
from lockgate_coordinator.runtime.process import run
from lockgate_coordinator.runtime.settings import CoordinatorSettings, JwtSettings

from tests.jwts import AUDIENCE, ISSUER, TestingIssuer, ec_key, jwk, pem, rsa_key, write_jwks


@pytest.fixture
def issuer(tmp_path: Path) -> TestingIssuer:
    return TestingIssuer(tmp_path)


def roles(reader: JwtIssuer, text: str) -> set[str]:
    found = reader.principal(text)
    return set() if found is None else {role.value for role in found.roles}


@pytest.mark.parametrize("role", [role.value for role in Role])
def test_a_jwt_grants_access_with_its_role(issuer: TestingIssuer, role: str) -> None:
    found = JwtIssuer(issuer.settings).principal(issuer.sign(role))
    assert found == Principal(f"alice of {ISSUER}", frozenset({Role(role)}))


def test_a_claim_may_hold_several_values_and_unknown_ones_are_nothing(issuer: TestingIssuer) -> None:
    reader = JwtIssuer(issuer.settings)
    assert roles(reader, issuer.sign(["submit", "operate", "dancer", 7])) == {"submit", "operate"}
    for claim in ("dancer", "", ["dancer"], [], None, 7, {"role": "admin"}, [["admin"]]):
        assert roles(reader, issuer.sign(claim)) == set()


def test_another_claim_and_what_its_values_mean(issuer: TestingIssuer) -> None:
    settings = replace(issuer.settings, role_claim="groups", roles={"team-a": "submit", "team-b": "operate"})
    reader = JwtIssuer(settings)
    assert roles(reader, issuer.sign("admin", groups=["team-a", "team-c"])) == {"submit"}
    assert roles(reader, issuer.sign("admin", groups="team-b")) == {"operate"}
    assert roles(reader, issuer.sign(groups=["admin"])) == set()  # a name of a role means nothing then


def test_it_begins_and_ends(issuer: TestingIssuer) -> None:
    now = [1_000.0]
    reader = JwtIssuer(issuer.settings, lambda: now[0])
    text = issuer.sign(exp=2_000, nbf=1_100)
    for at, valid in ((1_000.0, False), (1_080.0, True), (1_999.9, True), (2_000.0, False)):
        now[0] = at
        assert (reader.principal(text) is not None) == valid, at


@pytest.mark.parametrize(
    "claims",
    [
        {"iss": "https://other.example"},
        {"aud": "another cluster"},
        {"aud": ["another", "third"]},
        {"exp": None},
        {"aud": None},
        {"iss": None},
        {"sub": None},
        {"sub": ""},
        {"exp": 1},
        {"exp": "for ever"},
        {"exp": float("nan")},
        {"exp": float("inf")},
        {"nbf": 9_999_999_999},
        {"nbf": "now"},
    ],
)
def test_claims_that_are_wrong_or_missing(issuer: TestingIssuer, claims: dict[str, Any]) -> None:
    reader = JwtIssuer(issuer.settings)
    assert reader.principal(issuer.sign("admin")) is not None
    assert reader.principal(issuer.sign("admin", **claims)) is None


def _of_nobody(claims: dict[str, Any]) -> str:
    return jwt.encode(claims, None, "none")


def _with_the_public_key_as_a_secret(claims: dict[str, Any], public: str) -> str:
    def part(content: bytes) -> str:
        return base64.urlsafe_b64encode(content).rstrip(b"=").decode()

    signed = f"{part(json.dumps({'alg': 'HS256', 'kid': 'first'}).encode())}.{part(json.dumps(claims).encode())}"
    mac = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256).sign(signed.encode(), public.encode())
    return f"{signed}.{part(mac)}"


def test_signatures_that_prove_nothing(issuer: TestingIssuer) -> None:
    reader = JwtIssuer(issuer.settings)
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "mallory", "exp": int(time.time()) + 60, "role": "admin"}
    good = issuer.sign("admin")
    head, body, signature = good.split(".")
    other = issuer.sign("read").split(".")[1]
    for text in (
        _of_nobody(claims),
        _with_the_public_key_as_a_secret(claims, pem(issuer.key)),
        issuer.sign("admin", key=ec_key()),
        issuer.sign("admin", key=rsa_key()),
        issuer.sign("admin", headers={"kid": "second"}),
        issuer.sign("admin", headers={"kid": "first", "crit": ["x"], "x": 1}),
        f"{head}.{other}.{signature}",
        f"{head}.{body}.",
        f"{head}.{body}",
    ):
        assert reader.principal(text) is None, text
    assert reader.principal(good) is not None


@pytest.mark.parametrize("text", ["", ".", "..", "a.b.c", "\u00e9.b.c", "lockgate.a.b.c", "x" * 8_000])
def test_invalid_jwts(issuer: TestingIssuer, text: str) -> None:
    assert JwtIssuer(issuer.settings).principal(text) is None


@pytest.mark.parametrize("deep", ["[" * 6_000, '{"a":' * 1_500])
def test_a_deeply_nested_token_is_not_a_jwt(issuer: TestingIssuer, deep: str) -> None:
    """Headers are read of anybody, before the signature is looked at."""
    part = base64.urlsafe_b64encode(deep.encode()).rstrip(b"=").decode()
    assert JwtIssuer(issuer.settings).principal(f"{part}.e30.AAAA") is None


def test_an_algorithm_that_is_not_in_the_settings(issuer: TestingIssuer) -> None:
    key = rsa_key()
    write_jwks(issuer.file, jwk(key, kid="first"), jwk(issuer.key, kid="first"))
    reader = JwtIssuer(issuer.settings)
    assert roles(reader, issuer.sign(key=key)) == roles(reader, issuer.sign()) == {"read"}
    only = JwtIssuer(replace(issuer.settings, algorithms=("RS256",)))
    assert roles(only, issuer.sign(key=key)) == {"read"}
    assert roles(only, issuer.sign()) == set()
    write_jwks(issuer.file, jwk(key, alg="RS512"))
    assert roles(only, issuer.sign(key=key)) == set()


@pytest.mark.parametrize("make", [ec_key, rsa_key])
def test_keys_may_be_a_pem_file(issuer: TestingIssuer, make: Callable[[], Any]) -> None:
    key = make()
    issuer.file.write_text(pem(key))
    reader = JwtIssuer(issuer.settings)
    assert roles(reader, issuer.sign("submit", key=key)) == {"submit"}
    assert roles(reader, issuer.sign("submit")) == set()


def test_keys_are_read_again_when_they_change(issuer: TestingIssuer, caplog: pytest.LogCaptureFixture) -> None:
    reader, second = JwtIssuer(issuer.settings), ec_key()
    old, new = issuer.sign(), issuer.sign(key=second, headers={"kid": "second"})
    assert (roles(reader, old), roles(reader, new)) == ({"read"}, set())
    write_jwks(issuer.file, jwk(issuer.key, kid="first"), jwk(second, kid="second"))
    assert (roles(reader, old), roles(reader, new)) == ({"read"}, {"read"})
    write_jwks(issuer.file, jwk(second, kid="second"))
    assert (roles(reader, old), roles(reader, new)) == (set(), {"read"})
    issuer.file.unlink()
    assert roles(reader, new) == set()
    assert "no JWT is accepted: cannot read the keys" in caplog.text


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "not a file of public keys"),
        ("{", "not a file of public keys"),
        ('{"keys": 7}', "not a file of public keys"),
        ('{"keys": [7]}', "not a file of public keys"),
        ('{"keys": []}', "has no key that can check a signature"),
        ('{"keys": [{"kty": "new"}]}', "has no key that can check a signature"),
        ('{"keys": [{"kty": "oct", "k": "AAAA"}]}', "only public keys belong here"),
        (json.dumps({"keys": [{"kty": "EC"}] * 101}), "at most 100 are allowed"),
        ("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", "not a file of public keys"),
    ],
)
def test_files_of_keys_that_are_none(tmp_path: Path, content: str, said: str) -> None:
    (tmp_path / "keys").write_text(content)
    with pytest.raises(KeyFileError, match=said):
        read_keys(tmp_path / "keys")


def test_keys_that_sign_are_short_or_are_for_others_to_change_are_refused(issuer: TestingIssuer) -> None:
    private = {**jwk(issuer.key), "d": "AAAA"}
    write_jwks(issuer.file, private)
    with pytest.raises(KeyFileError, match="only public keys belong here"):
        read_keys(issuer.file)
    write_jwks(issuer.file, jwk(rsa_key(1_024)))
    with pytest.raises(KeyFileError, match="fewer than 2048 bits"):
        read_keys(issuer.file)
    write_jwks(issuer.file, jwk(issuer.key, use="enc"))
    with pytest.raises(KeyFileError, match="no key that can check a signature"):
        read_keys(issuer.file)
    write_jwks(issuer.file, jwk(issuer.key))
    issuer.file.chmod(0o666)
    with pytest.raises(KeyFileError, match="chmod go-w"):
        read_keys(issuer.file)


def test_without_the_package_or_the_keys_there_is_one_sentence(
    issuer: TestingIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SettingsError, match=r"^jwt\.keys: cannot read the keys in /nowhere: No such file"):
        JwtIssuer(replace(issuer.settings, keys="/nowhere"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(SettingsError, match=r"pip install 'lockgate\[jwt\]'"):
        JwtIssuer(issuer.settings)


def test_a_coordinator_does_not_start_without_the_package(
    issuer: TestingIssuer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    settings = CoordinatorSettings("127.0.0.1:1", str(tmp_path), bind="127.0.0.1:0", jwt=issuer.settings)
    assert run(settings) == 2
    assert capsys.readouterr() == (
        "",
        "error: jwt: JWTs need the package PyJWT on every coordinator: pip install 'lockgate[jwt]'\n",
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"issuer": ""}, "jwt.issuer: it is empty"),
        ({"audience": ""}, "jwt.audience: it is empty"),
        ({"keys": ""}, "jwt.keys: it is empty"),
        ({"role_claim": ""}, "jwt.role_claim: it is empty"),
        ({"algorithms": ("none",)}, "'none' is not allowed; use RS256"),
        ({"algorithms": ("ES256", "HS256")}, "'HS256' is not allowed"),
        ({"algorithms": ()}, "'nothing' is not allowed"),
        ({"roles": {"team": "root"}}, "'team' stands for a role that does not exist: 'root' is not a role"),
    ],
)
def test_settings_that_cannot_work(changes: dict[str, Any], said: str) -> None:
    settings = replace(JwtSettings(ISSUER, AUDIENCE, "/keys"), **changes)
    with pytest.raises(SettingsError, match=said):
        CoordinatorSettings("127.0.0.1:2181", "/storage", jwt=settings).check()
