"""Several LeaderElection machines on the embedded twin, with every message late, twice or out of order.

The evidence is arbitrary too: a live leader may be reported gone. Safety must not depend on correct evidence.
"""

from __future__ import annotations

import itertools

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from lockgate_ha import election_messages as m
from lockgate_ha import steps
from lockgate_ha.election import LeaderElection, Phase
from lockgate_ha.embedded import EmbeddedSession, EmbeddedZooKeeper
from lockgate_ha.errors import Conflict, Fenced, OutcomeUnknown, StoreError
from lockgate_ha.grant import LeadershipGrant
from lockgate_ha.paths import Paths
from lockgate_ha.session import SessionState
from lockgate_ha.session_store import SessionStore
from lockgate_ha.store import Create
from lockgate_proto.messages import LeaderRecord

PATHS = Paths("property")
COORDINATORS = 3
STATES = (m.Connected, m.Disconnected, m.Expired)
_serial = itertools.count()


class Coordinator:
    """A machine whose effects happen at once and whose events wait until they are delivered."""

    def __init__(self, number: int, world: Elections) -> None:
        self.world = world
        self.me = LeaderRecord(coordinator_id=f"n{number}", address=f"n{number}:1")
        self.machine = LeaderElection(self.me)
        self.events: list[m.Event] = []
        self.session: EmbeddedSession | None = None
        self.store = SessionStore("property")
        self.known: steps.Known = {}
        self.nonce = ""
        self.grants: list[LeadershipGrant] = []
        self.carry_out(self.machine.start())

    def deliver(self, event: m.Event) -> None:
        self.carry_out(self.machine.handle(event, self.world.now_ms))

    def carry_out(self, effects: list[m.Effect]) -> None:
        for effect in effects:
            if isinstance(effect, m.OpenSession):
                self.open(effect.generation)
            elif isinstance(effect, m.Granted):
                self.world.note_grant(effect.grant)
                self.grants.append(effect.grant)
            elif isinstance(effect, m.Probe):
                self.world.probes.append((self, effect.token))
            elif isinstance(effect, m.Join | m.ReadView | m.Claim | m.Release | m.Challenge | m.AnswerChallenge):
                self.ask(effect)

    def open(self, generation: int) -> None:
        if self.session is not None:
            self.session.close()
        self.known, self.nonce = {}, f"{self.me.coordinator_id}x{next(_serial)}"

        def listen(state: SessionState, session: str) -> None:
            if state is SessionState.CONNECTED:
                self.events.append(m.Connected(generation, session))
            elif state is SessionState.SUSPENDED:
                self.events.append(m.Disconnected(generation))
            else:
                self.events.append(m.Expired(generation))

        self.watch = lambda: self.events.append(m.Changed(generation))
        self.session = self.world.server.open(listen)
        self.store.attach(self.session)

    def ask(self, effect: m.Join | m.ReadView | m.Claim | m.Release | m.Challenge | m.AnswerChallenge) -> None:
        session, generation = self.session, effect.generation
        assert session is not None
        try:
            if isinstance(effect, m.Join):
                steps.prepare(session, PATHS)
                name = steps.join(session, PATHS, self.nonce, self.me, effect.rejoin)
                self.events.append(m.Joined(generation, name))
            elif isinstance(effect, m.ReadView):
                view = steps.read_view(session, PATHS, self.known, self.watch)
                self.events.append(m.Viewed(generation, view, 1))
            elif isinstance(effect, m.Challenge):
                steps.challenge(session, PATHS, effect.token)
                self.events.append(m.Challenged(generation, effect.token, posted=True))
            elif isinstance(effect, m.AnswerChallenge):
                steps.answer_challenge(session, PATHS)
            elif isinstance(effect, m.Release):
                steps.release(session, PATHS, effect.token, effect.contender)
            else:
                self.claim(effect, session)
        except StoreError:
            if isinstance(effect, m.Challenge):
                self.events.append(m.Challenged(generation, effect.token, posted=False))
            elif not isinstance(effect, m.Release | m.AnswerChallenge):
                self.events.append(m.Failed(generation))

    def claim(self, effect: m.Claim, session: EmbeddedSession) -> None:
        record = LeaderRecord(effect.token, self.me.address, session.id, 0, self.me.coordinator_id)
        failure: m.ClaimFailure | None = None
        try:
            steps.claim(
                session,
                PATHS,
                effect.contender,
                record,
                effect.epoch_version,
                effect.replaces_leader,
                effect.unanswered,
            )
        except Conflict:
            failure = m.ClaimFailure.REFUSED
        except OutcomeUnknown:
            failure = m.ClaimFailure.UNKNOWN
        except StoreError:
            failure = m.ClaimFailure.UNAVAILABLE
        answer = m.Claimed(effect.generation, effect.token) if failure is None else None
        self.events.append(answer or m.ClaimFailed(effect.generation, failure or m.ClaimFailure.UNKNOWN))


class Elections(RuleBasedStateMachine):
    """The world: time, the twin, and what is known to have happened."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0
        self.server = EmbeddedZooKeeper()
        self.probes: list[tuple[Coordinator, int]] = []
        self.granted: set[int] = set()
        self.writes: list[int] = []
        self.highest_epoch = 0
        self.nodes = [Coordinator(number, self) for number in range(COORDINATORS)]
        self.eye = self.server.open()

    def note_grant(self, grant: LeadershipGrant) -> None:
        assert grant.token not in self.granted, f"token {grant.token} was granted twice"
        self.granted.add(grant.token)

    def epoch(self) -> int:
        node = self.eye.get(PATHS.epoch)
        return 0 if node is None else int(node.data)

    node = st.integers(0, COORDINATORS - 1)

    @initialize(settled=st.booleans())
    def begin(self, settled: bool) -> None:
        """From nothing, or with a leader and its standbys."""
        for node in self.nodes if settled else ():
            self.drain(node)

    @rule()
    def everybody_suspects(self) -> None:
        """All believe at once, from what each last saw, that the leader is gone, and their turn has come."""
        for node in self.nodes:
            node.deliver(m.LeaderGone(self.epoch(), 1))
        while self.probes:
            self.answer_probe(m.ProbeAnswer.REFUSED)
        self.wait(100_000)

    @rule(number=node, place=st.integers(0, 5), again=st.booleans())
    def deliver(self, number: int, place: int, again: bool) -> None:
        """One waiting event, not necessarily the oldest, and perhaps once more later.

        Only the states of a session keep their order and come once: that is the contract of a session.
        """
        coordinator = self.nodes[number]
        if not coordinator.events:
            return
        event = coordinator.events[place % len(coordinator.events)]
        if isinstance(event, STATES):
            event, again = next(early for early in coordinator.events if isinstance(early, STATES)), False
        if not again:
            coordinator.events.remove(event)
        coordinator.deliver(event)

    @rule(number=node)
    def deliver_all(self, number: int) -> None:
        self.drain(self.nodes[number])

    def drain(self, coordinator: Coordinator) -> None:
        for _ in range(200):
            if not coordinator.events:
                return
            coordinator.deliver(coordinator.events.pop(0))
        raise AssertionError(f"never quiet:\n{coordinator.machine.story.describe('stuck')}")

    @rule(ms=st.sampled_from([1, 100, 500, 5_000, 100_000]))
    def wait(self, ms: int) -> None:
        self.now_ms += ms
        for node in self.nodes:
            node.deliver(m.Tick())

    @rule(number=node)
    def cut(self, number: int) -> None:
        session = self.nodes[number].session
        if session is not None:
            self.server.suspend(session)

    @rule(number=node)
    def heal(self, number: int) -> None:
        session = self.nodes[number].session
        if session is not None:
            self.server.resume(session)

    @rule(number=node)
    def expire(self, number: int) -> None:
        session = self.nodes[number].session
        if session is not None:
            self.server.expire(session.id)

    @rule(applied=st.booleans())
    def break_next_write(self, applied: bool) -> None:
        self.server.break_next_write(applied=applied)

    @rule(number=node, token=st.integers(0, 30))
    def report_gone(self, number: int, token: int) -> None:
        self.nodes[number].deliver(m.LeaderGone(min(token, self.epoch()), 1))

    @rule(number=node)
    def report_not_leading(self, number: int) -> None:
        self.nodes[number].deliver(m.NotLeading(self.epoch(), 1))

    @rule(number=node, patience_ms=st.sampled_from([1, 100, 1_000]))
    def report_silent(self, number: int, patience_ms: int) -> None:
        self.nodes[number].deliver(m.Silent(self.epoch(), 1, patience_ms))

    @rule(number=node)
    def report_answered(self, number: int) -> None:
        self.nodes[number].deliver(m.Answered(self.epoch()))

    @rule(answer=st.sampled_from(m.ProbeAnswer))
    def answer_probe(self, answer: m.ProbeAnswer) -> None:
        if self.probes:
            member, token = self.probes.pop(0)
            member.deliver(m.Probed(token, answer))

    @rule(number=node, ahead=st.integers(0, 3))
    def step_down(self, number: int, ahead: int) -> None:
        self.nodes[number].deliver(m.StepDown("asked to", max(0, self.epoch() + 1 - ahead)))

    @rule(number=node, named=st.one_of(st.integers(0, 30), st.sampled_from([2**63 - 2, 2**63 - 1])))
    def name_token(self, number: int, named: int) -> None:
        """Also one that was never granted."""
        self.nodes[number].deliver(m.TokenSeen("named in a message", named))

    @rule(number=node)
    def write(self, number: int) -> None:
        """With every grant that was ever given, also long revoked ones."""
        subject = self.nodes[number]
        for grant in subject.grants:
            try:
                subject.store.commit(grant, [Create(f"{PATHS.jobs}/j{next(_serial)}")])
            except Fenced:
                continue
            except StoreError:
                continue
            assert grant.token == self.epoch(), "a zombie's write went through"
            self.writes.append(grant.token)

    @invariant()
    def tokens_rise(self) -> None:
        epoch = self.epoch()
        assert epoch >= self.highest_epoch
        self.highest_epoch = epoch
        assert self.writes == sorted(self.writes)
        assert all(token <= epoch for token in self.granted)
        node = self.eye.get(PATHS.epoch)
        assert node is None or node.version == epoch  # the tokens count the grants: no peer can make them jump

    def teardown(self) -> None:
        """When the faults end, exactly one leads, and its writes go through."""
        self.server._breaks.clear()
        for node in self.nodes:
            assert node.session is not None
            self.server.resume(node.session)
        for _ in range(40):
            for node in self.nodes:
                self.drain(node)
            while self.probes:
                self.answer_probe(m.ProbeAnswer.ACCEPTED)
            self.wait(50_000)
        for node in self.nodes:
            self.drain(node)
        leaders = [node for node in self.nodes if node.machine.phase is Phase.LEADING]
        assert len(leaders) == 1, "\n---\n".join(node.machine.story.describe("leads") for node in self.nodes)
        grant = leaders[0].machine.grant
        assert grant is not None
        assert grant.token == self.epoch()
        leaders[0].store.commit(grant, [Create(f"{PATHS.jobs}/last")])


Elections.TestCase.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
TestElections = Elections.TestCase
