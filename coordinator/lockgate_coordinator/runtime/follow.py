"""Standbys hold a stream to the leader: it breaks within milliseconds when the leader's process dies."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from lockgate_common.addresses import ProbeAnswer
from lockgate_common.ports import probe_tcp
from lockgate_common.proof import Introduction, Peer, UnprovenPeer
from lockgate_common.recurring_log import RecurringLog
from lockgate_common.security import Credentials
from lockgate_common.serving.event_loop import Bell
from lockgate_proto.messages import FollowRequest, LeaderBeat, LeaderRecord
from lockgate_proto.rpc import call, path

from lockgate_coordinator.runtime.answer_times import AnswerTimes
from lockgate_coordinator.runtime.dispatcher import Dispatcher
from lockgate_coordinator.runtime.rpc_server import Stream
from lockgate_coordinator.runtime.settings import CoordinatorSettings

log = logging.getLogger(__name__)

_QUIET_BEATS = 1.5  # then the leader is asked, by a call and by a challenge through ZooKeeper
_SILENT_BEATS = 3  # then it may have vanished: its port is probed, too
_PAUSE_S = 0.1  # between two probes of a leader that does not answer
ANSWER_S = 2.0  # for one probe of a leader that sends no heartbeats
SILENT_S = 10.0  # without any answer, after which it is replaced; its own watchdog has the same limit
_LOOK_S = 3.0  # the most that one probe without an answer counts
_NO_ANSWER = (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
_END_S = 5.0
_NOTIFY_S = 1.0  # for one try to notify a leader that it was replaced
_NOTIFY_AGAIN_S = 2.0
_NOTIFICATIONS = 60  # it may be cut off from this process, too


class FollowService:
    """The leader's side of FollowService in control.proto."""

    def __init__(self, dispatcher: Dispatcher, coordinator_id: str, heartbeat_ms: int) -> None:
        self._dispatcher = dispatcher
        self._coordinator_id = coordinator_id
        self._heartbeat_s = heartbeat_ms / 1000

    async def Follow(self, request: FollowRequest, stream: Stream) -> None:
        """Sends heartbeats until the term or the stream ends; the last one announces the end of the term."""
        term = await self._dispatcher.leading(stream.thread)
        if request.token > term.token:
            raise self._dispatcher.refuse_token(f"coordinator {request.coordinator_id}", request.token, term)
        log.info("%s follows this leader", request.coordinator_id)
        bell = Bell(stream.thread)
        with self._dispatcher.changing(bell):
            await stream.send(LeaderBeat(term.token, True, self._coordinator_id))
            while not await self._dispatcher.over(term, bell, self._heartbeat_s):
                await stream.send(LeaderBeat(term.token, True, self._coordinator_id))
        await stream.send(LeaderBeat(term.token, False, self._coordinator_id))


class Evidence(Protocol):
    """What a follower reports to, with the leader's token: see the methods of Elector."""

    def report_leader_gone(self, token: int) -> None:
        """The stream broke, or nothing was sent for long."""
        ...

    def report_not_leading(self, token: int) -> None:
        """Its process says that it does not lead."""
        ...

    def report_silent(self, token: int, patience_ms: int) -> None:
        """Nothing was sent for a while: it was asked, and has this long to answer."""
        ...

    def report_answered(self, token: int) -> None:
        """It was reported as silent, and has sent something."""
        ...

    def report_unanswering(self, token: int) -> None:
        """It has not answered for very long."""
        ...


@dataclass(frozen=True, slots=True)
class _Asked:
    """A health check is over. is_answered: with any result."""

    is_answered: bool


_Message = LeaderBeat | grpc.RpcError | _Asked | None
"""What wakes a follower: a heartbeat, the end of the stream, the answer to a health check, or another leader."""


class Follower:
    """The standby's side: reports evidence that the leader has failed. The elector decides."""

    def __init__(self, settings: CoordinatorSettings, coordinator_id: str, evidence: Evidence) -> None:
        self._credentials: Credentials = settings.credentials
        self._beat_s = settings.heartbeat_ms / 1000
        self._quiet_s, self._silence_s = _QUIET_BEATS * self._beat_s, _SILENT_BEATS * self._beat_s
        self._coordinator_id = coordinator_id
        self._evidence = evidence
        self._times = AnswerTimes()
        self._heard_at = 0.0  # when the last heartbeat came, or its stream was opened
        self._is_proven = False  # the present stream has brought a heartbeat: anyone can answer a health check
        self._silent = 0  # token of the leader that was reported as silent, and has not answered
        self._silence = (0, 0.0, 0.0)  # token of the leader, seconds for which it gave no answer, when that was counted
        self._changed = threading.Condition()
        self._leader: LeaderRecord | None = None
        self._last: LeaderRecord | None = None  # the leader that was followed last
        self._ended = threading.Event()
        self._notifiers: list[threading.Thread] = []
        self._refused_by = 0  # token of the leader for which this was logged
        self._stopped = False
        self._trouble = RecurringLog()
        self._stream: queue.Queue[_Message] = queue.Queue()
        self._thread = threading.Thread(target=self._run, name="follower")

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def follow(self, leader: LeaderRecord | None, token: int) -> None:
        """Watches this leader from now on; None: none (there is no leader, or it is this process).

        token: of the present leader, also of this process; 0 for none. The previous leader is notified of it.
        """
        with self._changed:
            self._leader = leader
            if self._last is not None and token > self._last.token:
                self._notify_former(self._last, token)
            if token:
                self._last = leader
            self._stream.put(None)  # wakes the reader of the present stream
            self._changed.notify_all()

    def stop(self) -> None:
        """Joins the thread."""
        with self._changed:
            self._stopped = True
            self._ended.set()
            self._leader = None
            self._stream.put(None)
            self._changed.notify_all()
        for thread in (self._thread, *self._notifiers):
            if thread.is_alive():
                thread.join()

    def _run(self) -> None:
        while (leader := self._next()) is not None:
            with self._credentials.channel(leader.address) as channel:
                self._watch(leader, channel)
            with self._changed:
                if self._leader is leader:
                    self._changed.wait(_PAUSE_S)

    def _next(self) -> LeaderRecord | None:
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or self._leader is not None)
            return None if self._stopped else self._leader

    def _watch(self, leader: LeaderRecord, channel: grpc.Channel) -> None:
        """One stream, from its start to its end or to another leader."""
        inbox: queue.Queue[_Message] = queue.Queue()
        with self._changed:
            if self._leader is not leader:
                return
            self._stream = inbox
        self._heard_at, self._is_proven = time.monotonic(), False
        request = FollowRequest(self._coordinator_id, leader.token)
        introduction = self._introduction(leader)
        beats = call(channel, "FollowService", "Follow")(request, metadata=introduction.metadata)
        reader = threading.Thread(target=_read, args=(beats, introduction, inbox), name="follower-stream", daemon=True)
        reader.start()
        try:
            while self._read_message(leader, inbox, channel):
                pass
        finally:
            beats.cancel()
            reader.join(_END_S)  # a standby that waited for gRPC here would be blind

    def _introduction(self, leader: LeaderRecord) -> Introduction:
        peer = Peer(leader.address, leader.instance)
        return self._credentials.introduction(peer, path("FollowService", "Follow"))

    def _notify_former(self, former: LeaderRecord, token: int) -> None:
        """Notifies a leader that it was replaced. Without ZooKeeper it cannot know that, and would go on.

        Runs on a separate thread, because the new leader must be followed at once.
        """
        thread = threading.Thread(target=self._notify, args=(former, token), name="follower-farewell")
        self._notifiers = [thread for thread in self._notifiers if thread.is_alive()] + [thread]
        thread.start()

    def _notify(self, former: LeaderRecord, token: int) -> None:
        request = FollowRequest(self._coordinator_id, token)
        for _ in range(_NOTIFICATIONS):
            with self._credentials.channel(former.address) as channel:
                follow = call(channel, "FollowService", "Follow")
                try:
                    beats = follow(request, timeout=_NOTIFY_S, metadata=self._introduction(former).metadata)
                    next(iter(beats), None)
                    beats.cancel()
                    return  # it is notified
                except grpc.RpcError as error:
                    if error.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                        return  # it knows already, or refuses this process
            if self._ended.wait(_NOTIFY_AGAIN_S):
                return

    def _read_message(self, leader: LeaderRecord, inbox: queue.Queue[_Message], channel: grpc.Channel) -> bool:
        """Handles the next message, or its absence. False when the stream is to be closed."""
        try:
            message = inbox.get(timeout=self._quiet_s)
        except queue.Empty:
            message = self._ask(leader, inbox, channel)
        if self._leader is not leader:
            return False
        if isinstance(message, LeaderBeat):
            if message.leading and message.token == leader.token:
                self._beat(leader)
                return True
            self._evidence.report_not_leading(leader.token)
            return False
        if isinstance(message, grpc.RpcError):
            self._judge(leader, message)
            return False
        if isinstance(message, _Asked):
            if not message.is_answered:
                self._missed(leader)
            elif self._is_proven:
                self._answered(leader)
        return True

    def _ask(self, leader: LeaderRecord, inbox: queue.Queue[_Message], channel: grpc.Channel) -> _Message:
        """A heartbeat is late: asks by a health check. Returns the next message: its answer, or that there is none."""
        asked_at = time.monotonic()
        asked = health_pb2_grpc.HealthStub(channel).Check.future(health_pb2.HealthCheckRequest(), timeout=ANSWER_S)
        asked.add_done_callback(lambda call: None if call.cancelled() else inbox.put(_Asked(_is_answer(call.code()))))
        while True:
            self._report_silent(leader)
            try:
                message = inbox.get(timeout=max(0.0, self._silence_s - self._quiet_s))
            except queue.Empty:
                text = "the leader %s has sent nothing for %.1f s"
                self._trouble.warning(log, "silence", text, leader.address, time.monotonic() - self._heard_at)
                self._evidence.report_leader_gone(leader.token)
                continue
            asked.cancel()
            if isinstance(message, _Asked) and message.is_answered and self._is_proven:
                self._times.noted(leader.token, int((time.monotonic() - asked_at) * 1000))
            return message

    def _beat(self, leader: LeaderRecord) -> None:
        now, self._is_proven = time.monotonic(), True
        self._times.noted(leader.token, int((now - self._heard_at - self._beat_s) * 1000))
        self._heard_at = now
        self._answered(leader)

    def _missed(self, leader: LeaderRecord) -> None:
        """Counts another probe without an answer. An open port only proves that a process exists, perhaps a stuck one.

        Counted from the first probe, even without any heartbeat before. Each probe counts for a bounded time, so that a
        standby that was itself frozen does not take that for silence of the leader.
        """
        now = time.monotonic()
        token, silent_s, looked_at = self._silence
        if token != leader.token:
            silent_s, looked_at = 0.0, now
        silent_s += min(now - looked_at, _LOOK_S)
        self._silence = (leader.token, silent_s, now)
        if silent_s > 0:  # a call to a process that has ended fails as well, but its port refuses before the next one
            self._report_silent(leader)
        if silent_s >= SILENT_S and probe_tcp(leader.address) is ProbeAnswer.ACCEPTED:
            text = "the leader %s accepts connections, but has answered no call for %.0f s"
            self._trouble.warning(log, "no answer", text, leader.address, silent_s)
            self._evidence.report_unanswering(leader.token)

    def _report_silent(self, leader: LeaderRecord) -> None:
        self._silent = leader.token
        self._evidence.report_silent(leader.token, self._times.patience_ms(leader.token))

    def _answered(self, leader: LeaderRecord) -> None:
        self._silence = (leader.token, 0.0, time.monotonic())
        if self._silent == leader.token:
            self._evidence.report_answered(leader.token)
        self._silent = 0

    def _judge(self, leader: LeaderRecord, error: grpc.RpcError) -> None:
        if isinstance(error, UnprovenPeer):  # another process: not an answer of the leader
            self._log_refusal(leader, str(error))
            self._evidence.report_leader_gone(leader.token)
            self._missed(leader)
            return
        code = error.code()
        if code is grpc.StatusCode.FAILED_PRECONDITION:
            self._evidence.report_not_leading(leader.token)
        elif code is grpc.StatusCode.UNAUTHENTICATED:
            self._log_refusal(leader, str(error.details()))
        else:
            if problem := self._credentials.handshake_problem(str(error.details())):
                self._log_refusal(leader, f"it {problem}")
            self._evidence.report_leader_gone(leader.token)
        if _is_answer(code):
            self._answered(leader)
        else:
            self._missed(leader)

    def _log_refusal(self, leader: LeaderRecord, why: str) -> None:
        if self._refused_by != leader.token:
            log.error("the leader %s cannot be followed: %s", leader.address, why)
        self._refused_by = leader.token


def _is_answer(code: grpc.StatusCode) -> bool:
    return code not in _NO_ANSWER


def _read(beats: Iterator[LeaderBeat], introduction: Introduction, inbox: queue.Queue[_Message]) -> None:
    try:
        introduction.wait_proven(beats)
        for beat in beats:
            inbox.put(beat)
    except grpc.RpcError as error:
        inbox.put(error)
    else:
        inbox.put(LeaderBeat())  # ended without a heartbeat: it does not lead
