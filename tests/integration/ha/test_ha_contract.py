"""The contract of a session and of the fenced store, held by ZooKeeper and by its embedded twin alike."""

from __future__ import annotations

import dataclasses
import threading

import pytest
from lockgate_ha import steps
from lockgate_ha.errors import Conflict, Fenced, RecordTooLarge, SessionLost, StoreUnavailable
from lockgate_ha.grant import LeadershipGrant
from lockgate_ha.paths import Paths
from lockgate_ha.session import Session, SessionState
from lockgate_ha.session_store import SessionStore
from lockgate_ha.store import Check, Create, Delete, Put
from lockgate_proto.messages import LeaderRecord

from .conftest import KINDS, TLS, WAIT_S, World

with_tls = pytest.mark.parametrize("world", [*KINDS, TLS], indirect=True)


@pytest.fixture
def base(world: World) -> str:
    """A node of this test alone."""
    session = world.open()
    path = f"/contract-{world.cluster}"
    session.transact([Create(path)])
    return path


@pytest.fixture
def session(world: World, base: str) -> Session:
    assert base
    return world.open()


def lead(world: World, session: Session, name: str) -> LeadershipGrant:
    """Takes the grant by the elector's own steps."""
    paths = Paths(world.cluster)
    steps.prepare(session, paths)
    contender = steps.join(session, paths, name, LeaderRecord(address=f"{name}:1"), rejoin=False)
    view = steps.read_view(session, paths, {}, lambda: None)
    record = LeaderRecord(token=view.epoch + 1, address=f"{name}:1", session=session.id)
    steps.claim(session, paths, contender, record, view.epoch_version, view.leader is not None)
    return LeadershipGrant(record.token, name, session.id)


# -- nodes ------------------------------------------------------------------------------------------------------------


def test_nodes_are_made_changed_and_removed(session: Session, base: str) -> None:
    path = f"{base}/a"
    assert session.get(path) is None
    assert session.transact([Create(path, b"1")]) == (path,)
    first = session.get(path)
    assert first is not None
    assert (first.data, first.version, first.owner) == (b"1", 0, "")
    session.transact([Put(path, b"2", version=0)])
    second = session.get(path)
    assert second is not None
    assert (second.data, second.version) == (b"2", 1)
    session.transact([Delete(path, version=1)])
    assert session.get(path) is None
    assert session.children(path) == ()


@pytest.mark.parametrize(
    ("operation", "path"),
    [
        (Create("/a"), "/a"),
        (Create("/missing/b"), "/missing/b"),
        (Put("/missing", b""), "/missing"),
        (Put("/a", b"", version=7), "/a"),
        (Put("/a", b"", version=0), "/a"),
        (Delete("/missing"), "/missing"),
        (Delete("/a", version=0), "/a"),
        (Delete("/p"), "/p"),
        (Check("/missing"), "/missing"),
        (Check("/a", version=0), "/a"),
    ],
    ids=str,
)
def test_a_conflict_rolls_the_whole_transaction_back(
    session: Session, base: str, operation: Create | Put | Delete | Check, path: str
) -> None:
    session.transact([Create(f"{base}/a"), Put(f"{base}/a", b"1"), Create(f"{base}/p"), Create(f"{base}/p/c")])
    here = type(operation)(**{**_fields(operation), "path": base + operation.path})
    with pytest.raises(Conflict) as error:
        session.transact([Create(f"{base}/new"), Put(f"{base}/a", b"2"), here, Create(f"{base}/newer")])
    assert error.value.path == base + path
    assert session.children(base) == ("a", "p")
    node = session.get(f"{base}/a")
    assert node is not None
    assert node.data == b"1"


def _fields(operation: object) -> dict[str, object]:
    return {name: getattr(operation, name) for name in operation.__slots__}  # type: ignore[attr-defined]


def test_a_transaction_sees_its_own_earlier_operations(session: Session, base: str) -> None:
    session.transact([Create(f"{base}/a"), Delete(f"{base}/a"), Create(f"{base}/a", b"again"), Check(f"{base}/a")])
    node = session.get(f"{base}/a")
    assert node is not None
    assert node.data == b"again"


def test_sequential_names_rise(session: Session, base: str) -> None:
    made = [session.transact([Create(f"{base}/n-", sequential=True)])[0] for _ in range(3)]
    assert made == sorted(set(made))
    assert all(len(item.rsplit("-", 1)[1]) == 10 for item in made)


def test_ephemeral_nodes_vanish_with_their_session(world: World, session: Session, base: str) -> None:
    other = world.open()
    other.transact([Create(f"{base}/e", ephemeral=True)])
    node = session.get(f"{base}/e")
    assert node is not None
    assert node.owner == other.id
    other.close()
    session.sync()
    assert session.get(f"{base}/e") is None


@with_tls
def test_many_nodes_are_read_as_one_by_one(session: Session, base: str) -> None:
    session.transact([Create(f"{base}/a", b"1"), Create(f"{base}/b", b"2"), Put(f"{base}/b", b"3")])
    paths = [f"{base}/b", f"{base}/none", f"{base}/a", base]
    assert session.get_all(paths) == tuple(map(session.get, paths))
    assert session.get_all([]) == ()


def test_a_path_that_is_too_long_is_refused_before_it_can_break_the_connection(session: Session, base: str) -> None:
    long = f"{base}/{'k' * 1_100_000}"
    for ask in (
        lambda: session.get(long),
        lambda: session.get(long, lambda: None),
        lambda: session.children(long),
        lambda: session.get_all([base, long]),
        lambda: session.transact([Create(long)]),
        lambda: session.transact([Create(f"{base}/\u20ac" + 1_000 * "/\u20ac\u20ac\u20ac")]),  # by its bytes
    ):
        with pytest.raises(RecordTooLarge, match="path of"):
            ask()
    assert session.get(base) is not None
    assert session.state is SessionState.CONNECTED


@with_tls
def test_too_large_is_refused_before_it_can_break_the_connection(session: Session, base: str) -> None:
    with pytest.raises(RecordTooLarge):
        session.transact([Create(f"{base}/big", b"x" * 1_000_001)])
    session.transact([Create(f"{base}/fits", b"x" * 999_000)])
    assert session.state is SessionState.CONNECTED


# -- watches ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", ["create", "put", "delete", "child"])
def test_watches_fire_on_the_change(world: World, session: Session, base: str, change: str) -> None:
    heard = threading.Event()
    path = f"{base}/w"
    if change in ("put", "delete"):
        session.transact([Create(path)])
    if change == "child":
        session.children(base, heard.set)
    else:
        session.get(path, heard.set)
    operation = {"put": Put(path, b"2"), "delete": Delete(path)}.get(change, Create(path))
    world.open().transact([operation])
    assert heard.wait(WAIT_S)


def test_a_watch_set_twice_fires_once(world: World, session: Session, base: str) -> None:
    calls: list[int] = []
    last = threading.Event()

    def watch() -> None:
        calls.append(1)

    for _ in range(3):
        session.get(f"{base}/w", watch)
    session.get(f"{base}/z", last.set)
    world.open().transact([Create(f"{base}/w"), Create(f"{base}/z")])
    assert last.wait(WAIT_S)
    assert len(calls) == 1


# -- the life of a session --------------------------------------------------------------------------------------------


@with_tls
def test_a_session_survives_a_broken_connection(world: World, base: str) -> None:
    states: list[SessionState] = []
    back = threading.Event()

    def listen(state: SessionState, _session: str) -> None:
        states.append(state)
        if states.count(SessionState.CONNECTED) == 2:
            back.set()

    session = world.connector.open(listen)
    world.sessions.append(session)
    assert session.wait_connected(round(WAIT_S * 1000))
    session.transact([Create(f"{base}/e", ephemeral=True)])
    before = session.id
    world.cut(session)
    assert back.wait(WAIT_S)
    assert states == [SessionState.CONNECTED, SessionState.SUSPENDED, SessionState.CONNECTED]
    assert session.id == before
    assert session.get(f"{base}/e") is not None


@with_tls
def test_an_expired_session_is_permanently_lost(world: World, base: str) -> None:
    lost = threading.Event()
    session = world.connector.open(lambda state, _: lost.set() if state is SessionState.LOST else None)
    world.sessions.append(session)
    assert session.wait_connected(round(WAIT_S * 1000))
    session.transact([Create(f"{base}/e", ephemeral=True)])
    world.expire(session)
    assert lost.wait(WAIT_S)
    assert session.state is SessionState.LOST
    assert not session.wait_connected(0)
    with pytest.raises(SessionLost):
        session.get(base)
    with pytest.raises(SessionLost):
        session.transact([Create(f"{base}/never")])
    assert world.open().children(base) == ()


def test_a_closed_session_refuses_everything(world: World, base: str) -> None:
    session = world.open()
    session.close()
    session.close()
    with pytest.raises(StoreUnavailable):
        session.children(base)
    with pytest.raises(SessionLost):
        session.get_all([base])


@with_tls
def test_an_abandoned_session_leaves_its_nodes_behind(world: World, session: Session, base: str) -> None:
    crashed = world.open()
    crashed.transact([Create(f"{base}/e", ephemeral=True)])
    crashed.abandon()
    session.sync()
    assert session.get(f"{base}/e") is not None
    assert crashed.state is SessionState.LOST


# -- the fence --------------------------------------------------------------------------------------------------------


@with_tls
def test_tokens_rise_and_a_zombies_write_is_refused(world: World) -> None:
    zombie_session, next_session = world.open(), world.open()
    zombie = lead(world, zombie_session, "zombie")
    path = f"{Paths(world.cluster).jobs}/j"
    zombie_store = SessionStore(world.cluster, zombie_session)
    zombie_store.commit(zombie, [Create(path, b"1")])
    leader = lead(world, next_session, "next")
    assert leader.token == zombie.token + 1
    with pytest.raises(Fenced) as error:
        zombie_store.commit(zombie, [Put(path, b"2")])
    assert (error.value.token, error.value.seen) == (zombie.token, leader.token)
    assert zombie_store.read(path) == b"1"
    SessionStore(world.cluster, next_session).commit(leader, [Put(path, b"3")])
    assert zombie_store.read(path) == b"3"


def test_a_fresh_store_of_a_zombie_is_refused_too(world: World) -> None:
    zombie_session = world.open()
    zombie = lead(world, zombie_session, "zombie")
    lead(world, world.open(), "next")
    with pytest.raises(Fenced):
        SessionStore(world.cluster, zombie_session).commit(zombie, [Create(f"{Paths(world.cluster).jobs}/j")])


def test_two_claims_from_one_view_give_one_grant(world: World) -> None:
    paths, sessions = Paths(world.cluster), [world.open(), world.open()]
    steps.prepare(sessions[0], paths)
    me = LeaderRecord(address="x:1")
    places = [steps.join(session, paths, f"n{i}", me, rejoin=False) for i, session in enumerate(sessions)]
    view = steps.read_view(sessions[0], paths, {}, lambda: None)
    record = LeaderRecord(token=1, session=sessions[0].id)
    steps.claim(sessions[0], paths, places[0], record, view.epoch_version, False)
    for replaces in (False, True):
        with pytest.raises(Conflict):
            steps.claim(sessions[1], paths, places[1], record, view.epoch_version, replaces)


def test_a_leader_that_has_answered_its_challenge_is_not_replaced(world: World) -> None:
    leader, standby, paths = world.open(), world.open(), Paths(world.cluster)
    lead(world, leader, "a")
    place = steps.join(standby, paths, "b", LeaderRecord(address="b:1"), rejoin=False)
    view = steps.read_view(standby, paths, {}, lambda: None)
    record = LeaderRecord(token=2, address="b:1", session=standby.id)
    steps.challenge(standby, paths, 1)
    steps.answer_challenge(leader, paths)
    with pytest.raises(Conflict):
        steps.claim(standby, paths, place, record, view.epoch_version, True, unanswered=True)
    steps.challenge(standby, paths, 1)
    steps.claim(standby, paths, place, record, view.epoch_version, True, unanswered=True)
    assert steps.read_view(standby, paths, {}, lambda: None).leader == record
    assert standby.get(paths.challenge) is None


def test_without_its_contender_no_coordinator_is_granted(world: World) -> None:
    paths, session = Paths(world.cluster), world.open()
    steps.prepare(session, paths)
    with pytest.raises(Conflict, match="contenders/c-none"):
        steps.claim(session, paths, "c-none-0000000000", LeaderRecord(token=1), 0, False)
    assert session.get(paths.leader) is None


def test_a_grant_of_an_ended_session_is_refused(world: World) -> None:
    old = world.open()
    grant = lead(world, old, "a")
    store = SessionStore(world.cluster, world.open())
    with pytest.raises(Fenced, match="has ended"):
        store.commit(grant, [Create(f"{Paths(world.cluster).jobs}/j")])


def test_the_epoch_rewritten_with_the_same_token_fences_no_leader(world: World) -> None:
    session = world.open()
    grant = lead(world, session, "a")
    store = SessionStore(world.cluster, session)
    paths = Paths(world.cluster)
    store.commit(grant, [Create(f"{paths.jobs}/j")])
    session.transact([Put(paths.epoch, str(grant.token).encode())])
    store.commit(grant, [Delete(f"{paths.jobs}/j")])


@pytest.mark.parametrize("said", [0, 1, 41])
def test_the_epoch_version_of_a_grant_proves_nothing(world: World, said: int) -> None:
    """1 is right. Whatever it says, a leader's write is done and a zombie's is not."""
    session = world.open()
    grant = dataclasses.replace(lead(world, session, "a"), epoch_version=said)
    path = f"{Paths(world.cluster).jobs}/j"
    SessionStore(world.cluster, session).commit(grant, [Create(path)])
    lead(world, world.open(), "next")
    with pytest.raises(Fenced):
        SessionStore(world.cluster, session).commit(grant, [Delete(path)])


def test_joining_again_keeps_the_place_and_rejoining_moves_to_the_end(world: World) -> None:
    paths, session = Paths(world.cluster), world.open()
    steps.prepare(session, paths)
    me = LeaderRecord(coordinator_id="a", address="x:1", pid=4)
    first = steps.join(session, paths, "n", me, rejoin=False)
    assert steps.join(session, paths, "n", me, rejoin=False) == first
    steps.join(session, paths, "other", me, rejoin=False)
    again = steps.join(session, paths, "n", me, rejoin=True)
    line = steps.read_view(session, paths, {}, lambda: None).contenders
    assert [contender.name for contender in line][-1] == again
    assert len(line) == 2
    assert line[-1].record == LeaderRecord(coordinator_id="a", address="x:1", pid=4, session=session.id)
