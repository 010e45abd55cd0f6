"""Which way leads to a coordinator."""

from lockgate.client.address_map import AddressMap


def test_a_coordinator_is_reached_as_it_advertises_until_it_has_answered_elsewhere() -> None:
    address_map = AddressMap()
    assert address_map.to("c1:7070") == "c1:7070"
    address_map.learn("c1:7070", "127.0.0.1:7071")
    assert address_map.to("c1:7070") == "127.0.0.1:7071"
    assert address_map.to("c2:7070") == "c2:7070"


def test_an_address_is_forgotten_once() -> None:
    address_map = AddressMap()
    address_map.learn("c1:7070", "127.0.0.1:7071")
    assert address_map.forget("c1:7070")
    assert address_map.to("c1:7070") == "c1:7070"
    assert not address_map.forget("c1:7070")


def test_a_coordinator_that_answers_where_it_advertises_has_nothing_to_forget() -> None:
    address_map = AddressMap()
    address_map.learn("c1:7070", "c1:7070")
    assert not address_map.forget("c1:7070")
