"""Which hosts a certificate may name."""

from __future__ import annotations

import ipaddress

import pytest
from cryptography import x509
from lockgate_common.certificate_hosts import alternative_name
from lockgate_common.tls import SecurityError


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "coordinator-0.coordinator.lockgate.svc",
        "XN--MGBA3A4F16A",
        "3com.com",
        "*.c1.example",
        f"{'a' * 63}.example",
        ".".join(["ab"] * 84) + ".c",
    ],
)
def test_names(host: str) -> None:
    assert alternative_name(host) == x509.DNSName(host)


@pytest.mark.parametrize("host", ["127.0.0.1", "10.0.0.255", "::1", "2001:db8::1", "::ffff:10.0.0.1"])
def test_addresses_become_addresses(host: str) -> None:
    assert alternative_name(host) == x509.IPAddress(ipaddress.ip_address(host))


@pytest.mark.parametrize(
    ("host", "problem"),
    [
        ("", "it is empty"),
        (" ", "letters, digits and hyphens"),
        ("c1 c2", "letters, digits and hyphens"),
        ("c1,c2", "letters, digits and hyphens"),
        ("c1.example ", "letters, digits and hyphens"),
        ("c1.example\n", "letters, digits and hyphens"),
        ("task_manager", "letters, digits and hyphens"),
        ("-c1", "no hyphen at an end"),
        ("c1-.example", "no hyphen at an end"),
        ("c1..example", "1 to 63"),
        ("c1.example.", "1 to 63"),
        (f"{'a' * 64}.example", "1 to 63"),
        (".".join(["ab"] * 85), "at most 253 characters, but this one has 254"),
        ("*", "`*` may stand for the first part only"),
        ("c*.example.org", "`*` may stand for the first part only"),
        ("c1.*.example", "`*` may stand for the first part only"),
        ("*.example", "at least two parts"),
        ("[::1]", "without brackets"),
        ("[::1]:7070", "without brackets"),
        ("c1:7070", "without a port"),
        ("10.0.0.1:7070", "without a port"),
        ("https://c1", "without scheme"),
        ("10.0.0.0/24", "without scheme and path"),
        ("10.0.0.256", "looks like an address"),
        ("10.0.1", "looks like an address"),
        ("fe80::1%eth0", "omit the interface"),
        ("b\xfccher.example", "xn--"),
    ],
)
def test_anything_else_is_one_sentence(host: str, problem: str) -> None:
    with pytest.raises(SecurityError) as raised:
        alternative_name(host)
    said = str(raised.value)
    assert said.startswith(f"{host!r} is not a valid host for a certificate: ")
    assert problem in said
    assert "\n" not in said
