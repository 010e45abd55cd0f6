"""Which way leads to a coordinator."""

from lockgate.client.ways import Ways


def test_a_coordinator_is_reached_as_it_advertises_until_it_has_answered_elsewhere() -> None:
    ways = Ways()
    assert ways.to("c1:7070") == "c1:7070"
    ways.learn("c1:7070", "127.0.0.1:7071")
    assert ways.to("c1:7070") == "127.0.0.1:7071"
    assert ways.to("c2:7070") == "c2:7070"


def test_a_way_is_forgotten_once() -> None:
    ways = Ways()
    ways.learn("c1:7070", "127.0.0.1:7071")
    assert ways.forget("c1:7070")
    assert ways.to("c1:7070") == "c1:7070"
    assert not ways.forget("c1:7070")


def test_a_coordinator_that_answers_where_it_advertises_has_nothing_to_forget() -> None:
    ways = Ways()
    ways.learn("c1:7070", "c1:7070")
    assert not ways.forget("c1:7070")
