"""The control streams of task managers, between gRPC and the dispatcher."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from grpc import StatusCode
from lockgate_common.serving.event_loop import Bell
from lockgate_common.serving.refusals import Refused
from lockgate_proto.codec import MalformedMessage
from lockgate_proto.messages import (
    AssignSplits,
    AssignSplitsTogether,
    CoordinatorMessage,
    Deploy,
    DiscoverSplits,
    KeepCopies,
    NotifyCheckpointComplete,
    PrepareJob,
    Register,
    StateAnswer,
    TaskManagerMessage,
)

from lockgate_coordinator.runtime import faults
from lockgate_coordinator.runtime.dispatcher import Dispatcher
from lockgate_coordinator.runtime.link import Registration, TaskManagerLink
from lockgate_coordinator.runtime.register_bounds import register_problem
from lockgate_coordinator.runtime.rpc_server import Stream
from lockgate_coordinator.runtime.term import LeaderTerm
from lockgate_coordinator.runtime.undeliverable import problem_of

log = logging.getLogger(__name__)

_REGISTER_WAIT_S = 10.0

_MANY_SPLITS = 200  # some 500 us to encode on the loop


class ControlService:
    """The ControlService of control.proto. Each stream has two coroutines: a reader and a writer."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    async def Connect(self, stream: Stream) -> None:
        """Messages for the task manager until either side ends the stream."""
        term = await self._dispatcher.leading(stream.thread)
        bell = Bell(stream.thread)
        link = TaskManagerLink(stream.peer, bell.ring)
        registered = asyncio.Event()
        reader = asyncio.create_task(self._read(term, link, stream, registered))
        too_late = asyncio.get_running_loop().call_later(_REGISTER_WAIT_S, _give_up, link, registered)
        try:
            await self._write(term, link, stream, bell)
        finally:
            too_late.cancel()
            reader.cancel()
            link.close(StatusCode.CANCELLED, "the stream has ended")
            await asyncio.gather(reader, return_exceptions=True)
        code, reason = link.end or (StatusCode.CANCELLED, "")
        if code is not StatusCode.OK:  # only a Goodbye gets OK
            raise Refused(code, reason)

    async def _read(self, term: LeaderTerm, link: TaskManagerLink, stream: Stream, registered: asyncio.Event) -> None:
        name = ""
        try:
            while (message := await stream.receive()) is not None:
                if not name:
                    name = self._register(term, link, message)
                    registered.set()
                else:
                    self._received(term, link, name, message)
        except Refused as error:
            link.close(error.code, str(error))
        except MalformedMessage as error:
            link.close(StatusCode.INVALID_ARGUMENT, str(error))
        except Exception:
            log.exception("an internal error of the coordinator ends the stream of %s", name or link.peer)
        finally:
            registered.set()
            if name:
                self._dispatcher.tell(term, lambda: term.task_managers.broken(link, name))
            else:
                link.close(StatusCode.INVALID_ARGUMENT, "the stream ended before a Register")

    def _register(self, term: LeaderTerm, link: TaskManagerLink, message: TaskManagerMessage) -> str:
        self._check(term, message)
        register = message.body
        if not isinstance(register, Register) or not message.task_manager_id:
            raise Refused(
                StatusCode.INVALID_ARGUMENT, "the first message of a task manager has to be a Register with its id"
            )
        if problem := register_problem(message.task_manager_id, register):
            raise Refused(StatusCode.INVALID_ARGUMENT, problem)
        registration = Registration(message.task_manager_id, register, link, message.token, message.acknowledged)
        over = "this coordinator no longer leads"
        if not self._dispatcher.tell(
            term,
            lambda: term.task_managers.register(registration),
            lambda: link.close(StatusCode.UNAVAILABLE, over),  # the term closes only those that it has admitted
        ):
            raise Refused(StatusCode.UNAVAILABLE, over)
        return message.task_manager_id

    def _received(self, term: LeaderTerm, link: TaskManagerLink, name: str, message: TaskManagerMessage) -> None:
        self._check(term, message)
        if message.task_manager_id != name or isinstance(message.body, Register):
            raise Refused(StatusCode.INVALID_ARGUMENT, f"the stream belongs to {name}, which has registered already")
        is_awaited = isinstance(message.body, StateAnswer)  # by a client, and quickly handled
        self._dispatcher.tell(term, lambda: term.task_managers.received(link, message), here=is_awaited)

    def _check(self, term: LeaderTerm, message: TaskManagerMessage) -> None:
        if message.token > term.token:
            raise self._dispatcher.refuse_token(f"task manager {message.task_manager_id}", message.token, term)

    async def _write(self, term: LeaderTerm, link: TaskManagerLink, stream: Stream, bell: Bell) -> None:
        """Sends the messages of the link until it is closed."""
        while link.end is None:
            message = link.take()
            if message is None:
                await bell.wait()
                continue
            await self._deliver(term, link, stream, message)

    async def _deliver(
        self, term: LeaderTerm, link: TaskManagerLink, stream: Stream, message: CoordinatorMessage
    ) -> None:
        data = await stream.encoded(lambda: message, large=_is_large(message.body))
        if problem := problem_of(message.body, len(data)):
            self._dispatcher.tell(term, lambda: term.task_managers.undeliverable(link, message.body, problem))
            return
        notifies = isinstance(message.body, NotifyCheckpointComplete)
        if notifies:
            faults.point("before-notify")
        await stream.send_bytes(data)
        if notifies:  # the connection has taken it
            faults.point("after-notify")


def _is_large(body: Any) -> bool:
    """Whether encoding it would hold up the loop. The layout of a Deploy is encoded already."""
    match body:
        case PrepareJob() | KeepCopies():  # a graph, state handles
            return True
        case Deploy(restore=restore):
            return any(state.operators or state.channels for state in restore)
        case AssignSplits(splits=splits) | DiscoverSplits(known=splits):
            return len(splits) > _MANY_SPLITS
        case AssignSplitsTogether(orders=orders):
            return sum(len(order.splits) for order in orders) > _MANY_SPLITS
    return False


def _give_up(link: TaskManagerLink, registered: asyncio.Event) -> None:
    if not registered.is_set():
        link.close(StatusCode.DEADLINE_EXCEEDED, f"no Register came within {_REGISTER_WAIT_S:.0f} s")
