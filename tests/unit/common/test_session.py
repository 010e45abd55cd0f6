"""Session: what is sent arrives once and in order, whatever streams lose."""

from __future__ import annotations

import random

import pytest
from lockgate_common.session import Session


class End:
    """One end, and what has reached it."""

    def __init__(self) -> None:
        self.session: Session[str] = Session()
        self.heard: list[str] = []
        self.sent: list[str] = []

    def send(self) -> tuple[int, str]:
        body = str(len(self.sent))
        self.sent.append(body)
        return self.session.send(body), body

    def take(self, message: tuple[int, str], acknowledged: int) -> None:
        if self.session.receive(message[0], acknowledged) and message[0]:
            self.heard.append(message[1])


def test_numbers_begin_at_one_or_behind_those_that_the_other_end_knows() -> None:
    assert [Session[str]().send("a"), Session[str](41).send("a")] == [1, 42]


def test_a_message_is_kept_until_it_is_acknowledged() -> None:
    session = Session[str]()
    for body in "abc":
        session.send(body)
    session.receive(0, 2)
    assert (session.unacknowledged(), len(session)) == (((3, "c"),), 1)
    session.receive(0, 1)  # late
    assert session.send("d") == 4
    assert session.unacknowledged() == ((3, "c"), (4, "d"))


def test_messages_without_a_number_are_always_handled_and_acknowledge_nothing() -> None:
    session = Session[str]()
    assert [session.receive(number, 0) for number in (0, 5, 0, 5, 4, 6)] == [True, True, True, False, False, True]
    assert session.handled == 6


class Streams:
    """Both directions of one stream after another. What is on its way when one breaks is lost."""

    def __init__(self) -> None:
        self.ends = End(), End()
        self.paths: tuple[list[tuple[int, str, int]], ...] = ([], [])

    def put(self, at: int, number: int, body: str) -> None:
        self.paths[at].append((number, body, self.ends[at].session.handled))

    def connect(self) -> None:
        """A new stream: first a greeting, which is not numbered."""
        for at, end in enumerate(self.ends):
            self.paths[at].clear()
            for number, body in ((0, "greeting"), *end.session.unacknowledged()):
                self.put(at, number, body)

    def deliver(self, at: int) -> None:
        if self.paths[at]:
            number, body, acknowledged = self.paths[at].pop(0)
            self.ends[1 - at].take((number, body), acknowledged)


@pytest.mark.parametrize("seed", range(50))
def test_over_streams_that_break_everything_arrives_once_and_in_order(seed: int) -> None:
    chance, streams = random.Random(seed), Streams()
    for _ in range(300):
        at = chance.randrange(2)
        match chance.choices(("break", "send", "deliver"), (1, 10, 10))[0]:
            case "break":
                streams.connect()
            case "send":
                streams.put(at, *streams.ends[at].send())
            case "deliver":
                streams.deliver(at)
    streams.connect()
    while any(streams.paths):
        streams.deliver(0)
        streams.deliver(1)
    first, other = streams.ends
    assert (first.heard, other.heard) == (other.sent, first.sent)


def test_with_a_new_term_numbers_continue_and_kept_messages_are_dropped() -> None:
    session = Session[str]()
    session.enter(5)
    session.send("a")
    session.enter(5)
    assert session.unacknowledged() == ((1, "a"),)
    session.enter(6)
    assert session.unacknowledged() == ()
    assert session.send("b") == 2


class Terms(Streams):
    """The other end is a leader: each of its terms begins with a session of its own, which the first stream opens.

    This end may be slow to learn of a term: it is on a stream to the next one before it knows that there is one.
    """

    def __init__(self) -> None:
        super().__init__()
        self.term = 1
        self.known = 1  # to this end
        self.is_admitted = True

    def elect(self) -> None:
        """The same process leads again. Its streams are gone; what it and this end say now is of the new term."""
        self.term += 1
        self.is_admitted = False
        self.connect()

    def connect(self) -> None:
        mine, leader = self.ends
        if not self.is_admitted:
            leader.session, leader.heard, leader.sent = Session(mine.session.handled), [], []
            self.is_admitted = True
        else:
            leader.session.receive(0, mine.session.handled)
        super().connect()

    def deliver(self, at: int) -> None:
        if at == 1 and self.paths[1] and self.known != self.term:  # the leader speaks: now this end knows its term
            self.known = self.term
            mine = self.ends[0]
            mine.session.enter(self.term)
            mine.heard, mine.sent = [], []
            self.ends[1].heard.clear()
            self.paths[0].clear()  # said under the earlier token: the leader drops it
        super().deliver(at)


@pytest.mark.parametrize("seed", range(50))
def test_in_each_term_everything_arrives_once_also_where_its_leader_led_before(seed: int) -> None:
    chance, streams = random.Random(seed), Terms()
    streams.ends[0].session.enter(1)
    for _ in range(300):
        at = chance.randrange(2)
        match chance.choices(("elect", "break", "send", "deliver"), (1, 2, 20, 20))[0]:
            case "elect":
                streams.elect()
            case "break":
                streams.connect()
            case "send":
                streams.put(at, *streams.ends[at].send())
            case "deliver":
                streams.deliver(at)
    for _ in range(2):  # on the first stream this end may only learn of the term
        streams.connect()
        while any(streams.paths):
            streams.deliver(1)
            streams.deliver(0)
    mine, leader = streams.ends
    assert (mine.heard, leader.heard) == (leader.sent, mine.sent)


def test_an_end_that_has_handled_more_than_was_sent_gets_what_is_kept_under_higher_numbers() -> None:
    """Its first registration was one for an earlier peer that came late: since then that one has sent more."""
    leader: Session[str] = Session(10)
    assert [leader.send("cancel"), leader.send("deploy")] == [11, 12]
    leader.resume(17)
    assert leader.unacknowledged() == ((18, "cancel"), (19, "deploy"))
    leader.resume(18)
    assert leader.unacknowledged() == ((19, "deploy"),)
