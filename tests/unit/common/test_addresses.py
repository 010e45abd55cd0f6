"""Addresses: what a server may bind and advertise."""

from __future__ import annotations

import pytest
from lockgate_common.addresses import address_of, address_problem, is_loopback, zookeeper_problem


@pytest.mark.parametrize(
    ("bind", "advertise"),
    [
        ("127.0.0.1:7070", ""),
        ("host.example:7070", ""),
        ("[::1]:7070", ""),
        ("0.0.0.0:7070", "host.example:7070"),
        ("[::]:0", "10.0.0.7:0"),
    ],
)
def test_an_address_that_others_can_connect_to_is_fine(bind: str, advertise: str) -> None:
    assert address_problem(bind, advertise) == ""


@pytest.mark.parametrize("bind", ["0.0.0.0:7070", "[::]:7070", ":::7070"])
def test_every_address_of_a_machine_is_nothing_to_advertise(bind: str) -> None:
    problem = address_problem(bind, "")
    assert problem.startswith(f"advertise: bind is {bind}, every address of this machine")
    assert "set advertise to the host:port" in problem
    assert address_problem("127.0.0.1:1", bind).startswith(f"advertise: nothing can connect to {bind}")


@pytest.mark.parametrize(
    ("bind", "advertise", "problem"),
    [
        ("7070", "", "bind: '7070' is not host:port"),
        ("h:99999", "", "bind: 'h:99999' is not host:port"),
        ("h:1", "h:x", "advertise: 'h:x' is not host:port"),
        ("h:1", ":1", "advertise: ':1' is not host:port"),
    ],
)
def test_an_invalid_address_is_named(bind: str, advertise: str, problem: str) -> None:
    assert address_problem(bind, advertise) == problem


@pytest.mark.parametrize("hosts", ["zk", "zk:2181", "zk1:2181, zk2:2182,zk3", "[::1]:2181", "10.0.0.7:2181/some/root"])
def test_addresses_of_zookeeper(hosts: str) -> None:
    assert zookeeper_problem(hosts) == ""


@pytest.mark.parametrize("hosts", ["zk:99999", "zk:0", "zk:x", "zk:", ",", "zk1:1,", "zk1:1 zk2:2", "/root", "::1"])
def test_an_invalid_zookeeper_address_is_reported(hosts: str) -> None:
    assert zookeeper_problem(hosts) == "it must be host:port[,host:port...] with ports from 1 to 65535"


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "localhost", "[::1]", "::1"])
def test_loopback(host: str) -> None:
    assert is_loopback(f"{host}:7070")


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "10.0.0.7", "localhost.example", "127.0.0.1.example", "c-1", ""])
def test_addresses_beyond_loopback(host: str) -> None:
    assert not is_loopback(f"{host}:7070")


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:10.0.0.1:4711", "10.0.0.1"),
        ("ipv6:%5B::1%5D:4711", "::/64"),
        ("ipv6:[2001:db8::1]:4711", "2001:db8::/64"),
        ("ipv6:%5B2001:db8::ffff:1%5D:4712", "2001:db8::/64"),
        ("ipv6:%5Bfe80::1%25eth0%5D:4711", "fe80::/64"),
        ("ipv6:%5B::ffff:10.0.0.1%5D:4711", "10.0.0.1"),
        ("unix:/run/x", "unix:/run/x"),
        ("ipv6:what", "ipv6:what"),
        ("", ""),
    ],
)
def test_an_address_is_what_a_client_cannot_change_at_will(peer: str, address: str) -> None:
    assert address_of(peer) == address
