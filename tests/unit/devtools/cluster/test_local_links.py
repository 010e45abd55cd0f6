"""Cuts between containers: which commands go where, in which order, and what an end of the cut puts up with."""

from __future__ import annotations

import threading

import pytest
from lockgate_devtools.equipment import container_links
from lockgate_devtools.equipment.container_links import Endpoint

from lockgate.errors import UserError

VICTIM = Endpoint("victim", "10.0.0.1")
OTHERS = tuple(Endpoint(f"other-{number}", f"10.0.0.{number}") for number in (2, 3, 4))


class Engine:
    """Containers whose addresses for each other are wrong. What the scripts do in real ones, tests/docker tries."""

    def __init__(self) -> None:
        self.nowhere: dict[str, set[str]] = {other.container: set() for other in (VICTIM, *OTHERS)}
        self.ended: set[str] = set()
        self.stuck: set[str] = set()
        self.restarts_at_exec = ""
        self.order: list[str] = []
        self._lock = threading.Lock()

    def __call__(self, *arguments: str) -> str:
        with self._lock:
            if arguments[0] == "inspect":
                return f"{str(arguments[-1] not in self.ended).lower()}\n"
            assert arguments[0] == "run"
            container = arguments[arguments.index("--network") + 1].removeprefix("container:")
            script, _, *addresses = arguments[arguments.index("-c") + 1 :]
            if container in self.ended:
                if self.restarts_at_exec == container:
                    self.ended.discard(container)
                raise UserError(f"container {container} is not running")
            self.order.append(container)
            if "neigh replace" in script:
                self.nowhere[container].update(addresses)
            elif container not in self.stuck:
                self.nowhere[container].difference_update(addresses)
            return "".join(f"{item} dev eth0 lladdr x PERMANENT \n" for item in self.nowhere[container])


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    made = Engine()
    monkeypatch.setattr(container_links, "docker", made)
    return made


def test_a_cut_blocks_both_directions_and_begins_at_the_victim(engine: Engine) -> None:
    container_links.cut(VICTIM, OTHERS)
    assert engine.nowhere["victim"] == {other.address for other in OTHERS}
    assert all(engine.nowhere[other.container] == {VICTIM.address} for other in OTHERS)
    assert engine.order[0] == "victim"
    assert sorted(engine.order) == ["other-2", "other-3", "other-4", "victim"], "one command for each"


def test_healing_takes_all_of_it_back(engine: Engine) -> None:
    engine.nowhere["other-2"].add("10.0.0.9")  # of another cut
    container_links.cut(VICTIM, OTHERS)
    container_links.heal(VICTIM, OTHERS)
    assert engine.nowhere == {"victim": set(), "other-2": {"10.0.0.9"}, "other-3": set(), "other-4": set()}
    container_links.heal(VICTIM, OTHERS)


def test_restarted_containers_are_no_longer_cut_off(engine: Engine) -> None:
    container_links.cut(VICTIM, OTHERS)
    engine.nowhere["victim"].clear()
    engine.nowhere["other-2"].clear()
    engine.ended.add("other-3")
    container_links.heal(VICTIM, OTHERS)
    assert engine.nowhere["other-4"] == set()


def test_one_that_starts_just_then_is_asked_again(engine: Engine) -> None:
    container_links.cut(VICTIM, OTHERS)
    engine.ended.add("other-3")
    engine.restarts_at_exec = "other-3"
    container_links.heal(VICTIM, OTHERS)
    assert engine.nowhere["other-3"] == set()


def test_a_cut_that_stays_is_an_error_and_the_rest_is_healed(engine: Engine) -> None:
    container_links.cut(VICTIM, OTHERS)
    engine.stuck.add("other-2")
    with pytest.raises(UserError, match=r"container other-2 is still cut off from 10\.0\.0\.1"):
        container_links.heal(VICTIM, OTHERS)
    assert [name for name, addresses in engine.nowhere.items() if addresses] == ["other-2"]


def test_a_cut_that_cannot_be_made_whole_is_an_error(engine: Engine) -> None:
    engine.ended.add("other-4")
    with pytest.raises(UserError, match="other-4 is not running"):
        container_links.cut(VICTIM, OTHERS)
