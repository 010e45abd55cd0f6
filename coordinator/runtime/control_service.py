"""The control stream of every task manager: from gRPC's threads to the dispatcher and back."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Iterator

import grpc
from lockgate_proto.messages import CoordinatorMessage, Register, TaskManagerMessage

from coordinator.runtime.dispatcher import GRANT_WAIT_S, Dispatcher
from coordinator.runtime.errors import Refused
from coordinator.runtime.link import Registration, TaskManagerLink
from coordinator.runtime.register_bounds import register_problem
from coordinator.runtime.term import LeaderTerm

log = logging.getLogger(__name__)

_REGISTER_WAIT_S = 10.0


class ControlService:
    """See control.proto. One thread reads each stream, gRPC's own thread writes it."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._numbers = itertools.count(1)
        self._readers: set[threading.Thread] = set()

    def close(self) -> None:
        """Joins the readers; to be called when the gRPC server has ended every stream."""
        for thread in list(self._readers):
            thread.join()

    def Connect(
        self, requests: Iterator[TaskManagerMessage], context: grpc.ServicerContext
    ) -> Iterator[CoordinatorMessage]:
        """Messages for the task manager until either side ends the stream."""
        term = self._dispatcher.wait_leading(GRANT_WAIT_S)
        link = TaskManagerLink(context.peer())
        registered = threading.Event()
        context.add_callback(lambda: link.close(grpc.StatusCode.CANCELLED, "the stream has ended"))
        reader = threading.Thread(
            target=self._read, args=(term, link, requests, registered), name=f"control-reader-{next(self._numbers)}"
        )
        self._readers.add(reader)
        reader.start()
        if not registered.wait(_REGISTER_WAIT_S):
            link.close(grpc.StatusCode.DEADLINE_EXCEEDED, f"no Register came within {_REGISTER_WAIT_S:.0f} s")
        yield from link.outgoing()
        code, reason = link.end or (grpc.StatusCode.CANCELLED, "")
        if code is not grpc.StatusCode.OK:  # which only a good-bye gets
            context.abort(code, reason)

    def _read(
        self,
        term: LeaderTerm,
        link: TaskManagerLink,
        requests: Iterator[TaskManagerMessage],
        registered: threading.Event,
    ) -> None:
        name = ""
        try:
            for message in requests:
                if not name:
                    name = self._register(term, link, message)
                    registered.set()
                else:
                    self._received(term, link, name, message)
        except Refused as error:
            link.close(grpc.StatusCode[error.code], str(error))
        except Exception as error:
            # grpc raises a bare Exception out of the iterator when the stream breaks: the usual end of a stream
            log.debug("the stream of %s broke: %r", name or link.peer, error)
        finally:
            registered.set()
            if name:
                self._dispatcher.tell(term, lambda: term.task_managers.broken(link, name))
            else:
                link.close(grpc.StatusCode.INVALID_ARGUMENT, "the stream ended before a Register")
            self._readers.discard(threading.current_thread())

    def _register(self, term: LeaderTerm, link: TaskManagerLink, message: TaskManagerMessage) -> str:
        self._check(term, message)
        said = message.body
        if not isinstance(said, Register) or not message.task_manager_id:
            raise Refused("INVALID_ARGUMENT", "the first message of a task manager has to be a Register with its id")
        if problem := register_problem(message.task_manager_id, said):
            raise Refused("INVALID_ARGUMENT", problem)
        registration = Registration(message.task_manager_id, message.token, said, link)
        over = "this coordinator no longer leads"
        if not self._dispatcher.tell(
            term,
            lambda: term.task_managers.register(registration),
            lambda: link.close(grpc.StatusCode.UNAVAILABLE, over),  # the term closes only those that it has admitted
        ):
            raise Refused("UNAVAILABLE", over)
        return message.task_manager_id

    def _received(self, term: LeaderTerm, link: TaskManagerLink, name: str, message: TaskManagerMessage) -> None:
        self._check(term, message)
        if message.task_manager_id != name or isinstance(message.body, Register):
            raise Refused("INVALID_ARGUMENT", f"the stream belongs to {name}, which has registered already")
        self._dispatcher.tell(term, lambda: term.task_managers.received(link, message))

    def _check(self, term: LeaderTerm, message: TaskManagerMessage) -> None:
        if not isinstance(message, TaskManagerMessage):
            raise Refused("INVALID_ARGUMENT", getattr(message, "reason", "not a TaskManagerMessage"))
        if message.token > term.token:
            raise self._dispatcher.refuse_token(f"task manager {message.task_manager_id}", message.token, term)
