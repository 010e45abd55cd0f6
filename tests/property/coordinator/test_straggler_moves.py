"""Whatever is measured: never more moves than allowed, never to a place that was left, never where there is no slot."""

from __future__ import annotations

from hypothesis import event, given, settings
from hypothesis import strategies as st
from lockgate_coordinator.graph.slots import SlotOffer
from lockgate_coordinator.job.events import Spare
from lockgate_coordinator.job.stragglers import AVOID_MS, Relocation, Stragglers
from lockgate_proto.messages import StragglerReplacement, SubtaskEffort

NAMES = ("a", "b", "c", "d", "e")
WIDTH = 4
OPTION = StragglerReplacement(factor=1.5, window_ms=1_000, pause_ms=3_000)

efforts = st.builds(
    SubtaskEffort,
    busy_us=st.integers(0, 900_000),
    batches=st.integers(0, 20),
    records=st.integers(1, 10**6),
    size_bytes=st.integers(0, 10**7),
    quickest_us=st.integers(1, 900_000),
)
steps = st.tuples(
    st.integers(1, 2_500),  # ms
    st.lists(st.tuples(st.integers(0, WIDTH - 1), efforts), max_size=WIDTH),
    st.dictionaries(st.sampled_from(NAMES), st.integers(0, 2), max_size=3),  # spare slots
    st.sampled_from(["", "", "", "", "new leader", "restart"]),
)


class History:
    """Feeds random reports and does what is decided."""

    def __init__(self) -> None:
        self.now = 0
        self.places = ["a", "a", "b", "c"]
        self.done = [SubtaskEffort()] * WIDTH
        self.moves: list[tuple[int, Relocation]] = []
        self.watch = Stragglers(OPTION)
        self.start()

    def start(self) -> None:
        self.done = [SubtaskEffort()] * WIDTH
        place = {("v", index): SlotOffer(name, f"{name}:1") for index, name in enumerate(self.places)}
        self.watch.running(place, self.now)

    def step(self, ms: int, reports: list[tuple[int, SubtaskEffort]], spares: dict[str, int], what: str) -> None:
        self.now += ms
        for index, more in reports:
            done = self.done[index]
            self.done[index] = SubtaskEffort(
                done.busy_us + more.busy_us,
                done.batches + more.batches,
                done.records + more.records,
                done.size_bytes + more.size_bytes,
                min(done.quickest_us or more.quickest_us, more.quickest_us),
            )
            self.watch.reported(("v", index), self.done[index], self.now)
        if what == "new leader":
            moves, self.watch = self.watch.moves, Stragglers(OPTION)
            self.watch.recovered(moves, self.now)
        if what:
            self.start()
        offers = [Spare(name, f"{name}:1", slots) for name, slots in spares.items()]
        found = self.watch.look(offers, self.now)
        if isinstance(found, Relocation):
            self.check(found, spares)
            self.watch.moved(found, self.now)
            self.moves.append((self.now, found))
            self.places = list(found.places)
            self.start()

    def check(self, found: Relocation, spares: dict[str, int]) -> None:
        assert found.slots
        assert all(self.places[slot] == found.source != found.target for slot in found.slots)
        assert len(found.slots) <= spares[found.target]
        kept = [name for slot, name in enumerate(self.places) if slot not in found.slots]
        assert kept == [name for slot, name in enumerate(found.places) if slot not in found.slots]
        assert all(found.places[slot] == found.target for slot in found.slots)
        for at, before in self.moves:
            assert before.source != found.target or self.now >= at + AVOID_MS
        if self.moves:
            assert self.now - self.moves[-1][0] >= OPTION.pause_ms << (min(len(self.moves), 8) - 1)


@settings(max_examples=150, deadline=None)
@given(st.lists(steps, min_size=20, max_size=80))
def test_random_measurements_never_move_more_than_allowed(
    history: list[tuple[int, list[tuple[int, SubtaskEffort]], dict[str, int], str]],
) -> None:
    world = History()
    for ms, reports, spares, what in history:
        world.step(ms, reports, spares, what)
    event(f"{min(len(world.moves), 3)} moves or more")
