"""The simulated data exchange: the real input gates and their registry, and a network in place of gRPC between them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from lockgate_proto.messages import Barrier, ChannelOpen, EndOfInput, LoopProbe
from lockgate_taskmanager.exchange.elements import ChannelId, Element, size_of
from lockgate_taskmanager.exchange.errors import ChannelBroken, ChannelClosed, ChannelRefused
from lockgate_taskmanager.exchange.gate import InputGate
from lockgate_taskmanager.exchange.server import DEPLOYMENT_WAIT_S

from tests.simulation.world import Fifo, World

if TYPE_CHECKING:
    from tests.simulation.taskmanager import SimulatedTaskManager

CHANNEL_BOUND = 12
"""Elements that wait for a receiver, or in its gate, before the sender is held up."""
WINDOW = 1
"""Elements of an elastic channel on their way at a time; the others wait where a barrier may overtake them."""
AGAIN_MS = 5


class SimulatedGate(InputGate):
    """The real gate, small. It never blocks: a caller that would wait is woken by `on_wake`, or tries again."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, max_elements=CHANNEL_BOUND, **options)
        self.on_wake: Callable[[], None] = lambda: None

    def put(
        self,
        channel: int,
        element: Element,
        is_canceled: Callable[[], bool] | None = None,  # noqa: ARG002
        *,
        may_overflow: bool = False,  # noqa: ARG002
    ) -> None:
        super().put(channel, element, may_overflow=True)
        self.on_wake()

    def poll(self, timeout_s: float | None, max_bytes: int = 1) -> list[tuple[int, Element]]:  # noqa: ARG002
        return super().poll(0, max_bytes)

    def wait(self, timeout_s: float | None) -> None:  # noqa: ARG002
        super().wait(0)

    def wake(self) -> None:
        super().wake()
        self.on_wake()

    def would_block(self, channel: int, element: Element) -> bool:
        """Whether a real put would wait."""
        overtakes = isinstance(element, Barrier) and element.unaligned
        return not overtakes and not self._closed and not self._fits(channel, size_of(element))


class Exchange:
    """Stands for lockgate_taskmanager.exchange.peers.PeerChannels: it reaches every process by its address."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.processes: dict[str, SimulatedTaskManager] = {}
        self.outputs: dict[SimulatedOutput, None] = {}  # open ones, in order

    def at(self, address: str) -> SimulatedTaskManager | None:
        """Who listens there."""
        found = self.processes.get(address)
        return found if found is not None and found.is_alive else None

    def process_died(self, process: SimulatedTaskManager) -> None:
        """Every stream of a dead process ends."""
        for output in list(self.outputs):
            if output.sender is process:
                output.cancel()
            elif output.receiver is process:
                output.receiver_gone("the receiver died")

    def cut(self) -> None:
        """Breaks one channel between two live subtasks."""
        if self.outputs:
            output = self.world.random.choice(list(self.outputs))
            self.world.note("network", f"{output} breaks")
            output.break_off("the network")
            output.tell_receiver("the network")


class SimulatedOutput:
    """A RemoteOutput of the exchange: in order, delayed, broken when the other side is not there any more.

    What leaves the queue is on its way; what has arrived waits there until the gate has room for it.
    """

    def __init__(
        self,
        peers: Exchange,
        address: str,
        hello: ChannelOpen,
        on_lost: Callable[[str], None],
        *,
        instance: str,
        on_writable: Callable[[], object] | None = None,
    ) -> None:
        del instance  # there are no impostors here
        self.sender = cast("SimulatedTaskManager", peers.world.current)
        self.receiver: SimulatedTaskManager | None = None
        self._exchange, self._world = peers, peers.world
        self._address, self._hello, self._on_lost, self._on_writable = address, hello, on_lost, on_writable
        self._queue: deque[Element] = deque()
        self._line: deque[Element] = deque()  # on its way; of these so many have arrived:
        self._arrived = 0
        self._is_retrying = False
        self._gate: SimulatedGate | None = None
        self._channel = 0
        self._canceled = False
        self._broken = ""
        self._give_up_at = 0.0
        self._window = WINDOW if on_writable is not None else None
        self._fifo = Fifo(peers.world, 0.2, 40.0 if on_writable is not None else 15.0)

    def __repr__(self) -> str:
        ends = (self._hello.source, self._hello.target)
        return " -> ".join(f"{end.vertex_id}[{end.subtask}]" for end in ends if end is not None)

    # -- as an OutputChannel ------------------------------------------------------------------------------------------

    @property
    def is_accepted(self) -> bool:
        return self._gate is not None

    def start(self) -> None:
        self._exchange.outputs[self] = None
        self._give_up_at = self._world.now + DEPLOYMENT_WAIT_S * 1_000
        self._world.schedule(self._world.delay(0.2, 5), self._probe_tcp)

    def send(self, element: Element) -> None:
        self._check()
        self._queue.append(element)
        self._pump()

    def has_room(self) -> bool:
        return not self._is_open or len(self._queue) + len(self._line) < CHANNEL_BOUND

    def overtake(self, barrier: Barrier) -> tuple[Element, ...]:
        self._check()
        last = max((place for place, queued in enumerate(self._queue) if isinstance(queued, Barrier)), default=-1)
        behind = [queued for place, queued in enumerate(self._queue) if place > last]
        self._queue.insert(last + 1, barrier)
        self._pump()
        return tuple(queued for queued in behind if not isinstance(queued, EndOfInput | LoopProbe))

    def cancel(self) -> None:
        if not self._canceled:
            self._canceled = True
            self._close()
            self.tell_receiver("the sender is gone")

    # -- as a network -------------------------------------------------------------------------------------------------

    @property
    def _is_open(self) -> bool:
        return not self._canceled and not self._broken

    def _check(self) -> None:
        if self._canceled:
            raise ChannelClosed("the sending subtask is canceled")
        if self._broken:
            raise ChannelBroken(self._broken)

    def _probe_tcp(self) -> None:
        """Tries until something listens."""
        process = self._exchange.at(self._address)
        if not self._is_open:
            return
        if process is None or self._is_apart(process):
            self._world.schedule(50, self._probe_tcp)
        else:
            process.later(0, lambda: self._admit(process))

    def _admit(self, process: SimulatedTaskManager) -> None:
        """As lockgate_taskmanager.exchange.server.ExchangeService."""
        source, target = self._hello.source, self._hello.target
        assert source is not None
        assert target is not None
        if not self._is_open:
            return
        if not process.tokens.admits(self._hello.token):
            self.break_off("the token is older than one seen here")
            return
        try:
            gate = process.registry.wait_for(target, 0)
            channel = gate.index_of(ChannelId(source.vertex_id, source.subtask))
            assert channel is not None, f"{self} is not of the graph"
            is_first = gate.connect(channel, self._receiver_closed)
        except ChannelClosed as closed:
            self.break_off(str(closed))
        except ChannelRefused as refused:
            if "replaced" in str(refused) or self._world.now > self._give_up_at:
                self.break_off(str(refused))
            else:
                process.later(10, lambda: self._admit(process))
        else:
            assert is_first, f"{self} is opened twice"
            assert isinstance(gate, SimulatedGate)
            self._gate, self._channel, self.receiver = gate, channel, process
            self._land()

    def _pump(self) -> None:
        while self._queue and (self._window is None or len(self._line) < self._window):
            self._line.append(self._queue.popleft())
            self._fifo.put(self._arrive, None)

    def _arrive(self) -> None:
        self._arrived += 1
        self._land()

    def _land(self) -> None:
        """Puts what has arrived into the gate, as far as it takes it."""
        while self._is_open and self._gate is not None and self._arrived and not self._is_retrying:
            assert self.receiver is not None
            if self._is_held_up() or self._gate.would_block(self._channel, self._line[0]):
                self._is_retrying = True
                self._world.schedule(AGAIN_MS, self._try_again)
                return
            had_room = self.has_room()
            self._arrived -= 1
            try:
                self._gate.put(self._channel, self._line.popleft())
            except ChannelClosed:
                return  # the gate has said so itself
            self._pump()
            if self._on_writable is not None and not had_room and self.has_room():
                self._on_writable()

    def _try_again(self) -> None:
        self._is_retrying = False
        self._land()

    def _is_apart(self, process: SimulatedTaskManager) -> bool:
        return self._world.paths.is_apart(self.sender.id, process.id)

    def _is_held_up(self) -> bool:
        assert self.receiver is not None
        return self.receiver.is_frozen or self._world.paths.is_cut(self.sender.id, self.receiver.id)

    def _receiver_closed(self) -> None:
        self._world.schedule(self._world.delay(1, 10), lambda: self.receiver_gone("the receiver ended it"))

    def receiver_gone(self, reason: str) -> None:
        """The other end is over; the sender notices it when the path is open."""
        assert self.receiver is not None
        self._world.paths.when_open(self.receiver.id, self.sender.id, lambda: self.break_off(reason))

    def break_off(self, reason: str) -> None:
        """The sender is notified that the channel is over."""
        if self._is_open:
            self._broken = f"the channel {self} broke: {reason}"
            self._close()
            self._on_lost(self._broken)

    def tell_receiver(self, reason: str) -> None:
        """The receiver is notified that nothing more will come."""
        gate, channel, process = self._gate, self._channel, self.receiver
        if gate is not None and process is not None:
            later = partial(process.later, self._world.delay(1, 10), lambda: gate.lost(channel, reason))
            self._world.paths.when_open(self.sender.id, process.id, later)

    def _close(self) -> None:
        self._exchange.outputs.pop(self, None)
        self._queue.clear()
        self._line.clear()
        self._arrived = 0
