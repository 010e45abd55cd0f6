"""The simulated data exchange: the real input gates and their registry, and a network in place of gRPC between them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from lockgate_proto.messages import Barrier, ChannelOpen, SubtaskId
from lockgate_taskmanager.exchange.elements import ALONE, CONTROL_BYTES, BatchPiece, Element, size_of
from lockgate_taskmanager.exchange.errors import CannotRejoin, ChannelBroken, ChannelClosed, ChannelRefused
from lockgate_taskmanager.exchange.gate import InputGate
from lockgate_taskmanager.exchange.outbox import Outbox
from lockgate_taskmanager.exchange.replay_log import Kept, ReplayLog, Sent
from lockgate_taskmanager.exchange.server import DEPLOYMENT_WAIT_S, admit

from tests.simulation.world import Fifo, World

if TYPE_CHECKING:
    from tests.simulation.taskmanager import SimulatedTaskManager

CHANNEL_BOUND = 12
"""Elements that wait for a receiver, or in its gate, before the sender is held up."""
WINDOW = 1
"""Elements of an elastic channel on their way at a time; the others wait where a barrier may overtake them."""
LOGGED_WINDOW = 2
"""The same of a channel with a log: small tables behind it become one."""
LOGGED_MESSAGE_BYTES = 130
"""Of records, in such a channel: some six of them, so that a large batch is several messages."""
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
        **rest: Any,
    ) -> None:
        super().put(channel, element, may_overflow=True, **rest)
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
        waiting = self._channels[channel].batches.waiting_bytes
        return not overtakes and not self._closed and not self._fits(channel, size_of(element) + waiting)


class Exchange:
    """Stands for lockgate_taskmanager.exchange.peers.PeerChannels: it reaches every process by its address."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.processes: dict[str, SimulatedTaskManager] = {}
        self.streams: dict[_Stream, None] = {}  # open ones, in order

    def at(self, address: str) -> SimulatedTaskManager | None:
        """Who listens there."""
        found = self.processes.get(address)
        return found if found is not None and found.is_alive else None

    def process_died(self, process: SimulatedTaskManager) -> None:
        """Every stream of a dead process ends."""
        for stream in list(self.streams):
            if stream.sender is process:
                stream.end("the sender is gone")
            elif stream.receiver is process:
                stream.receiver_gone("the receiver died")

    def cut(self) -> None:
        """Breaks one channel between two live subtasks."""
        if self.streams:
            stream = self.world.random.choice(list(self.streams))
            self.world.note("network", f"{stream} breaks")
            stream.break_off("the network")
            stream.tell_receiver("the network")


class _OutboxWithoutJoining(Outbox):
    """More elements are in flight."""

    def _can_join(self, first: Element, following: Element, size: int) -> bool:  # noqa: ARG002
        return False


class SimulatedOutput:
    """A RemoteOutput of the exchange: what it keeps and sends is decided by the real Outbox."""

    def __init__(
        self,
        peers: Exchange,
        address: str,
        hello: ChannelOpen,
        on_lost: Callable[[str], None],
        *,
        instance: str,
        on_writable: Callable[[], object] | None = None,
        log: ReplayLog | None = None,
    ) -> None:
        del instance  # there are no impostors here
        self.sender = cast("SimulatedTaskManager", peers.world.current)
        self.exchange, self._on_lost, self.on_writable = peers, on_lost, on_writable
        bounds = (1 << 40, CHANNEL_BOUND)
        self.box = _OutboxWithoutJoining(*bounds) if log is None else Outbox(*bounds, log, LOGGED_MESSAGE_BYTES)
        self.window = WINDOW if on_writable is not None else None if log is None else LOGGED_WINDOW
        self._canceled = False
        self._stream = _Stream(self, address, hello)

    @property
    def is_accepted(self) -> bool:
        return self._stream.gate is not None

    @property
    def is_absent(self) -> bool:
        return bool(self.box.broken)

    @property
    def target(self) -> SubtaskId | None:
        return self._stream.hello.target

    @property
    def received(self) -> Mapping[str, int]:
        return self.box.received

    @property
    def kept(self) -> Kept | None:
        return self.box.kept

    def require_intact(self) -> None:
        self._check()

    def completed(self, checkpoint_id: int) -> None:
        self.box.completed(checkpoint_id)

    def start(self) -> None:
        self._stream.start()

    def send(self, element: Element, place: BatchPiece = ALONE) -> None:
        for piece in self.box.pieces(element, place):
            self._check()
            self.box.add(piece, is_had=self.box.has_had(place.ranges))
        self._stream.pump()

    def has_room(self) -> bool:
        if self._canceled or self.box.is_over:
            return True
        return self.box.fits(CONTROL_BYTES) if self.is_absent else self._stream.has_room()

    def overtake(self, barrier: Barrier) -> tuple[Element, ...]:
        self._check()
        behind = self.box.overtake(barrier)
        self._stream.pump()
        return behind

    def rejoin(self, address: str, instance: str, hello: ChannelOpen, checkpoint_id: int) -> None:
        """As RemoteOutput."""
        del instance
        if self._canceled:
            raise ChannelClosed("the sending subtask is canceled")
        former = self._stream
        self.box.rejoined(str(former), checkpoint_id)
        self._stream = _Stream(self, address, hello)
        former.end("the sender is gone")
        self._stream.start()

    def cancel(self) -> None:
        if not self._canceled:
            self._canceled = True
            self.box.clear()
            self._stream.end("the sender is gone")

    def broke(self, stream: _Stream, reason: str) -> None:
        """A stream of it is over from without."""
        if not self._canceled and stream is self._stream:
            self.box.broke(f"the channel {stream} broke: {reason}", for_good=stream.gate is None)
            self._on_lost(self.box.broken)

    def _check(self) -> None:
        if self._canceled:
            raise ChannelClosed("the sending subtask is canceled")
        if self.box.is_over:
            raise ChannelBroken(self.box.broken)


class _Stream:
    """One connection of an output: in order, delayed, broken when the other side is not there any more.

    What leaves the outbox is on its way; what has arrived waits there until the gate has room for it.
    """

    def __init__(self, output: SimulatedOutput, address: str, hello: ChannelOpen) -> None:
        self.sender, self._exchange = output.sender, output.exchange
        self._world = world = output.exchange.world
        self.receiver: SimulatedTaskManager | None = None
        self._output, self._address, self.hello = output, address, hello
        self._line: deque[Sent] = deque()  # on its way; of these so many have arrived:
        self._arrived = 0
        self._is_retrying = False
        self.gate: SimulatedGate | None = None  # once it is accepted
        self._channel = self._attempt = 0
        self._is_open = True
        self._give_up_at = 0.0
        self._fifo = Fifo(world, 0.2, 40.0 if output.on_writable is not None else 15.0)

    def __repr__(self) -> str:
        ends = (self.hello.source, self.hello.target)
        return " -> ".join(f"{end.vertex_id}[{end.subtask}]" for end in ends if end is not None)

    def start(self) -> None:
        """Connects; does not wait for the receiver."""
        self._exchange.streams[self] = None
        self._give_up_at = self._world.now + DEPLOYMENT_WAIT_S * 1_000
        self._world.schedule(self._world.delay(0.2, 5), self._probe_tcp)

    def has_room(self) -> bool:
        """Whether what waits for the receiver is below the bound."""
        return len(self._output.box.queue) + len(self._line) < CHANNEL_BOUND

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
        if not self._is_open:
            return
        try:
            found = admit(self.hello, process.tokens, process.registry, 0, self._receiver_closed)
        except ChannelRefused as refused:
            if "is not running here" in str(refused) and self._world.now <= self._give_up_at:
                process.later(10, lambda: self._admit(process))
            else:
                self.break_off(str(refused))
        except (ChannelClosed, CannotRejoin) as error:
            self.break_off(str(error))
        else:
            gate, self._channel, self._attempt = found
            assert isinstance(gate, SimulatedGate)
            self.gate, self.receiver = gate, process
            self._output.box.accepted(gate.received(self._channel))
            self.pump()
            self._land()

    def pump(self) -> None:
        """Sends what is queued."""
        box, window = self._output.box, self._output.window
        while self._is_open and box.queue and (window is None or len(self._line) < window):
            self._line.append(box.take())
            self._fifo.put(self._arrive, None)

    def _arrive(self) -> None:
        self._arrived += 1
        self._land()

    def _land(self) -> None:
        """Puts what has arrived into the gate, as far as it takes it."""
        while self._is_open and self.gate is not None and self._arrived and not self._is_retrying:
            assert self.receiver is not None
            if self._is_held_up() or self.gate.would_block(self._channel, self._line[0].element):
                self._is_retrying = True
                self._world.schedule(AGAIN_MS, self._try_again)
                return
            had_room = self._output.has_room()
            self._arrived -= 1
            sent = self._line.popleft()
            try:
                self.gate.put(self._channel, sent.element, attempt=self._attempt, more=sent.more, read_to=sent.read_to)
            except ChannelClosed:
                return  # the gate has said so itself
            self.pump()
            on_writable = self._output.on_writable
            if on_writable is not None and not had_room and self._output.has_room():
                on_writable()

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
            self._close()
            self.sender.later(0, lambda: self._output.broke(self, reason))

    def end(self, reason: str) -> None:
        """The sender ends it."""
        self._close()
        self.tell_receiver(reason)

    def tell_receiver(self, reason: str) -> None:
        """The receiver is notified that nothing more will come."""
        gate, channel, process = self.gate, self._channel, self.receiver
        if gate is not None and process is not None:
            later = partial(process.later, self._world.delay(1, 10), lambda: gate.lost(channel, reason, self._attempt))
            self._world.paths.when_open(self.sender.id, process.id, later)

    def _close(self) -> None:
        self._is_open = False
        self._exchange.streams.pop(self, None)
        self._line.clear()
        self._arrived = 0
