"""A simulated subtask: the real SubtaskTask, whose thread is a series of events on the simulated clock."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from concurrent import futures
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from lockgate_taskmanager.exchange.elements import ChannelId
from lockgate_taskmanager.exchange.errors import ChannelBroken, ChannelClosed
from lockgate_taskmanager.runtime.emitter import ACCEPT_CHECK_S, BESIDE_CHECK_S
from lockgate_taskmanager.runtime.in_flight import FrozenChannels
from lockgate_taskmanager.runtime.stories import SubtaskStory
from lockgate_taskmanager.runtime.subtask_input import Records
from lockgate_taskmanager.runtime.subtask_task import PEER_LOST_GRACE_S, SubtaskTask
from lockgate_taskmanager.task import effects as do
from lockgate_taskmanager.task import events as on
from lockgate_taskmanager.task.program import Idle, ProgramContext, ProgramError

from tests.simulation.exchange import AGAIN_MS, SimulatedGate
from tests.simulation.programs import SimulatedPrograms
from tests.simulation.world import Crash, Violation, World

if TYPE_CHECKING:
    from tests.simulation.taskmanager import SimulatedTaskManager

BATCH_MS = (20.0, 120.0)
PRESSING_MS = (1.0, 12.0)
"""Between two batches of a source where barriers overtake: faster than what is behind it, so that queues are full."""
STEP_MS, SLOW_STEP_MS = (0.05, 2.0), (0.05, 40.0)
"""Behind an element of another subtask; the latter behind records where barriers overtake."""
STORE_MS = (1.0, 60.0)
RECORDING_MS = 20.0
"""How often an upload looks whether the records in flight are all there."""
EXPECTED = (ProgramError, ChannelBroken, ChannelClosed, OSError)


class SimulatedSubtask(SubtaskTask):
    """Steps are taken whenever the real thread would not wait. A subtask whose receivers are behind takes none."""

    gate: SimulatedGate

    def __init__(
        self,
        context: ProgramContext,
        channels: Sequence[ChannelId],
        factory: SimulatedPrograms,
        uploads: futures.Executor,
        report: Callable[[Any], None],
        on_ended: Callable[[SubtaskTask], None],
        story: SubtaskStory,
        spill_folder: str | None = None,
        token: Callable[[], int] | None = None,
        pause: Callable[[], Idle | None] = lambda: None,
    ) -> None:
        super().__init__(context, channels, factory, uploads, report, on_ended, story, spill_folder, token, pause)
        self.process = factory.host
        self.world = factory.host.world
        self.gate.on_wake = self._wake
        self._directory = context.checkpoint_directory
        self._is_due = self._is_over = self._has_worked = False
        self._lost: ChannelBroken | None = None

    def start(self) -> None:
        delay_ms = self.world.delay(1, 30) + self.process.storage.trouble.delay_ms  # to read what it restores
        self.process.later(delay_ms, lambda: self._take(self._open))

    def _open(self) -> None:
        self._opening_id = self._handle(on.Started(), self._story.last_id)
        self._outputs.start(self.world.now_ms)
        self._when_accepted()

    def _when_accepted(self) -> None:
        """A real one that starts beside others waits until each of its receivers has accepted its channel."""
        if self.context.is_beside and not self._outputs.check_accepted(self.world.now_ms):
            self.process.later(BESIDE_CHECK_S * 1_000, lambda: self._take(self._when_accepted))
        else:
            self._build()

    def cancel(self, cause_id: str) -> None:
        if not self._canceled.is_set():
            super().cancel(cause_id)
            self.process.later(self.world.delay(0, 10), lambda: self._take(self._step))

    def _wake(self, delay_ms: float = 0.1) -> None:
        """Takes a step soon."""
        if not self._is_due and self._program is not None:
            self._is_due = True
            self.process.later(delay_ms, self._turn)

    def _turn(self) -> None:
        self._is_due = False
        if self._lost is not None or self._canceled.is_set():
            return
        if not self._is_elastic and not self._outputs.has_room():
            self._wake(AGAIN_MS)  # a real one would be blocked by its next send
        else:
            self._take(self._step)

    def _take(self, action: Callable[[], None]) -> None:
        if self._is_over:
            return
        self._has_worked = False
        self._guard(action)
        if not self._machine.is_live:
            self._is_over = True
            self.gate.close()
            self._outputs.cancel()
            self._on_ended(self)
        else:
            self._rest()

    def _rest(self) -> None:
        """When the next step is due, unless something wakes it before."""
        slow = self._is_elastic
        if self._is_source and not self._is_input_done:
            self._wake(self.world.delay(*(PRESSING_MS if slow else BATCH_MS)))
        elif slow and not self._outputs.has_room():
            self._wake(ACCEPT_CHECK_S * 1_000)
        elif self._mailbox or self.gate.has_ready():
            self._wake(self.world.delay(*(SLOW_STEP_MS if slow and self._has_worked else STEP_MS)))
        elif self._outputs._pending:  # receivers that have not taken their channel
            self._wake(ACCEPT_CHECK_S * 1_000)

    def _process(self, records: Records) -> None:
        self._has_worked = True
        super()._process(records)

    def _failed(self, error: BaseException) -> None:
        """See SubtaskTask. The grace before a lost channel is reported passes on the simulated clock."""
        if isinstance(error, Crash | Violation):
            raise error
        if not isinstance(error, EXPECTED):
            self.world.violate(f"{self._name}: {error!r}")
        if self._lost is None and isinstance(error, ChannelBroken):
            self._lost = error
            self.process.later(PEER_LOST_GRACE_S * 1_000, lambda: self._take(self._say_lost))
        elif not isinstance(error, ChannelBroken) or error is self._lost:
            super()._failed(error)

    def _say_lost(self) -> None:
        assert self._lost is not None
        raise self._lost

    def _handle(self, event: on.Event, cause_id: str = "") -> str:
        if isinstance(event, on.UploadFailed) and "could not be stored: " not in event.reason:
            self.world.violate(f"{self._name}: {event.reason}")
        return super()._handle(event, cause_id)

    def _apply(self, effect: do.Effect, event_id: str) -> None:
        super()._apply(effect, event_id)
        self.process.point(f"effect {type(effect).__name__}")

    def _discard(self, checkpoint_id: int) -> None:
        with contextlib.suppress(OSError):
            self.process.storage.delete_below(f"{self._directory}/chk-{checkpoint_id}")

    def __repr__(self) -> str:
        waiting = f"{type(self._mailbox[0]).__name__} waits" if self._mailbox else ""
        return f"{self._name} {self._machine.state.value} {waiting}"


class SimulatedExecutor:
    """BackgroundThreads of the runtime: each call is an event of the process that made them."""

    def __init__(self, *_: Any, process: SimulatedTaskManager, **__: Any) -> None:
        self._process = process
        self._futures: list[futures.Future[Any]] = []

    def submit(self, call: Callable[..., Any], *arguments: Any) -> futures.Future[Any]:
        answer = _Future()
        self._futures = [future for future in self._futures if not future.done()]
        self._futures.append(answer)
        delay_ms = self._process.world.delay(*STORE_MS) + self._process.storage.trouble.delay_ms
        self._process.later(delay_ms, lambda: self._run(answer, call, arguments))
        return answer

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002
        for future in self._futures if cancel_futures else ():
            future.cancel()

    def join(self, timeout_s: float) -> bool:  # noqa: ARG002
        """See BackgroundThreads: there is no author's code here that would have to be ended."""
        return True

    def _run(self, answer: futures.Future[Any], call: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        channels = next((argument for argument in arguments if isinstance(argument, FrozenChannels)), None)
        if answer.cancelled():
            return
        if channels is not None and not channels.recording.is_over:
            self._process.later(RECORDING_MS, lambda: self._run(answer, call, arguments))
            return
        answer.set_running_or_notify_cancel()
        try:
            result = call(*arguments)
        except Exception as error:
            answer.set_exception(error)
        else:
            answer.set_result(result)


class SimulatedTimer:
    """threading.Timer of a process."""

    daemon = False

    def __init__(self, seconds: float, call: Callable[[], None], *, process: SimulatedTaskManager) -> None:
        self._seconds, self._call, self._process = seconds, call, process
        self._is_canceled = False

    def start(self) -> None:
        self._process.later(self._seconds * 1_000, lambda: None if self._is_canceled else self._call())

    def cancel(self) -> None:
        self._is_canceled = True


class _Future(futures.Future[Any]):
    """No pool comes by to take note that it was cancelled."""

    def cancel(self) -> bool:
        is_first = not self.cancelled() and super().cancel()
        if is_first:
            self.set_running_or_notify_cancel()
        return is_first or self.cancelled()


def clock(world: World) -> SimpleNamespace:
    """Stands for the module `time`."""
    return SimpleNamespace(
        monotonic=lambda: world.now_ms / 1_000,
        monotonic_ns=lambda: world.now_ms * 1_000_000,
        perf_counter_ns=lambda: world.now_ms * 1_000_000,
        time_ns=lambda: world.unix_us() * 1_000,
    )
