"""Implements `job.submit()`: sends the job, follows it until it runs, and reports; and how `lockgate submit` controls
it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from lockgate_proto.messages import (
    ForeachBatchSink,
    JobEvent,
    JobEventKind,
    JobGraph,
    JobState,
    JobStatus,
    PythonSink,
    SubmitResponse,
)

from lockgate.client import TERMINAL, Client, ClusterTarget, JobFailed, JobHandle, find_cluster
from lockgate.client.deadline import Deadline
from lockgate.pipeline.checks import job_key
from lockgate.pipeline.errors import PipelineError

START_TIMEOUT_MS = 60_000
# An error that only the first records show appears within this time after the start: a first micro-batch takes a
# second, or a few where Python workers start. A job that has had a record or a checkpoint by then is not waited for.
# One that writes with the author's Python is, until that has returned once: it is called when a checkpoint completes.
SETTLE_MS = 10_000
_QUIET_MS = 3_000

_STARTED = frozenset({JobState.RUNNING, JobState.FINISHING})
_PROOF = frozenset({JobEventKind.FIRST_RECORD, JobEventKind.CHECKPOINT_COMPLETED})
_COMMIT = frozenset({JobEventKind.FIRST_COMMIT})
_LATE = (ForeachBatchSink, PythonSink)  # the author's Python, first called when a checkpoint is complete


@dataclass(frozen=True, slots=True)
class Start:
    """The snapshot that a job starts from.

    pointer: of a savepoint or retained checkpoint, empty for none; allow_unmatched_state: its state of operators that
    the job does not have is dropped; trust_snapshot: it need not be sealed by the cluster.
    """

    pointer: str = ""
    allow_unmatched_state: bool = False
    trust_snapshot: bool = False


def _quietly(_text: str) -> AbstractContextManager[None]:
    return nullcontext()


@dataclass
class Steering:
    """Settings of `lockgate submit` for the file that it runs.

    target: where jobs go, None prints their graphs instead; preview: what happens to a job's key and graph in place of
    both; start: replaces the file's own when it has a pointer; say: where lines about a job go; busy: around the wait
    for one; handles: the submitted jobs; answers: of the leader, one for each; submitted: their number.
    """

    target: ClusterTarget | None
    key: str | None = None
    start: Start = Start()
    preview: Callable[[str, JobGraph], None] | None = None
    say: Callable[[str], None] = print
    busy: Callable[[str], AbstractContextManager[None]] = _quietly
    handles: list[JobHandle] = field(default_factory=list)
    answers: list[SubmitResponse] = field(default_factory=list)
    submitted: int = 0


class _Current:
    steering: Steering | None = None


def steer(steering: Steering | None) -> None:
    """From now on `job.submit()` in this process uses `steering`; None ends that."""
    _Current.steering = steering


def submit(key: str, graph: JobGraph, cluster: str | None, wait: bool, start: Start) -> JobHandle:
    """Submits the graph under the job key, follows it until it runs, and prints its status."""
    steering = _Current.steering
    if steering is None:
        handle, _ = send(Client.connect(find_cluster(cluster)), key, graph, start, print)
    else:
        handle = submit_graph(steering, graph, key, start)
    if wait and (steering is None or steering.target is not None):
        status = handle.wait()
        print(f"job {handle.key} has ended: {status.state.name}", flush=True)
    return handle


def submit_graph(steering: Steering, graph: JobGraph, key: str, start: Start = Start()) -> JobHandle:
    """Submits a graph with the settings of `lockgate submit`; prints it on a dry run."""
    if steering.key is not None and steering.submitted:
        raise PipelineError("the file submits several jobs; --key fits only one: give each Job its own key=")
    chosen, begin = job_key(steering.key or key), _steered(steering.start, start)
    is_first = not steering.submitted  # later jobs of the file may have none: this one is submitted already
    if is_first and not begin.pointer and (steering.start.allow_unmatched_state or steering.start.trust_snapshot):
        raise PipelineError("--allow-unmatched-state and --trust-snapshot need a snapshot: name it with --from", "")
    steering.submitted += 1
    if steering.preview is not None:
        steering.preview(chosen, graph)
        return DryRun(chosen)
    if steering.target is None:
        from lockgate.pipeline.graph_file import graph_text

        print(graph_text(graph))
        return DryRun(chosen)
    client = Client.connect(steering.target)
    with steering.busy(f"job {chosen} starts"):
        handle, answer = send(client, chosen, graph, begin, steering.say)
    steering.handles.append(handle)
    steering.answers.append(answer)
    return handle


def _steered(command: Start, file: Start) -> Start:
    """The command line's pointer has priority; what either of them allows is allowed."""
    allow = command.allow_unmatched_state or file.allow_unmatched_state
    return Start(command.pointer or file.pointer, allow, command.trust_snapshot or file.trust_snapshot)


class DryRun(JobHandle):
    """The result of `job.submit()` under `--dry-run` and `lockgate run`: there is no job."""

    def __init__(self, key: str) -> None:
        self.key = key

    def __getattr__(self, name: str) -> Client:
        raise PipelineError("there is no job: this is a dry run or a preview, which submits nothing")


def send(
    client: Client, key: str, graph: JobGraph, start: Start, say: Callable[[str], None]
) -> tuple[JobHandle, SubmitResponse]:
    """Submits and follows until the job runs, or START_TIMEOUT_MS has passed. Raises JobFailed when it fails."""
    try:
        response = client.submit(
            key,
            graph,
            start.pointer,
            allow_unmatched_state=start.allow_unmatched_state,
            trust_snapshot=start.trust_snapshot,
        )
    except KeyboardInterrupt:
        say(f"job {key} may or may not be submitted: `lockgate job {key}` shows it; --key {key} submits it again")
        raise
    for warning in response.warnings:
        say(f"warning: {warning}")
    if not response.created:
        say(f"job {key} was submitted before; following it")
    handle = JobHandle(client, key)
    try:
        say(_Follower(handle, say, needs_commit=response.created and _commits_with_python(graph)).run())
    except KeyboardInterrupt:
        say(f"job {key} is submitted, and continues without this command; {_ways_on(key)}")
        raise
    return handle, response


def _commits_with_python(graph: JobGraph) -> bool:
    return any(isinstance(operator.kind, _LATE) for vertex in graph.vertices for operator in vertex.operators)


class _Follower:
    """Reads a job's updates until it runs, has ended, or cannot start yet."""

    def __init__(self, handle: JobHandle, say: Callable[[str], None], *, needs_commit: bool) -> None:
        """needs_commit: only output of a sink proves that the job works; else a record or a checkpoint is enough."""
        self._handle = handle
        self._proofs = _COMMIT if needs_commit else _PROOF
        self._reached = False  # a record has come to a sink
        self._say = say
        self._reported = ""
        self._status: JobStatus | None = None
        self._proven = False

    def run(self) -> str:
        """One sentence about the job's status."""
        deadline, settled = Deadline(START_TIMEOUT_MS), None
        watch = self._handle.watch(on_lost=lambda reason: self._say(f"looking for the new leader ({reason})"))
        try:
            while not (deadline.expired or (settled is not None and settled.expired)):
                update = watch.poll((settled or deadline).remaining_s(_QUIET_MS / 1000) * 1000)
                self._take(update)
                if self._status is not None and self._status.state in TERMINAL:
                    break
                running = self._status is not None and self._status.state in _STARTED
                if running and self._proven:
                    break
                settled = (settled or Deadline(SETTLE_MS)) if running else None
        finally:
            watch.close()
        return self._sentence()

    def _take(self, update: JobStatus | JobEvent | None) -> None:
        if isinstance(update, JobEvent):
            self._proven = self._proven or update.kind in self._proofs
            self._reached = self._reached or update.kind is JobEventKind.FIRST_RECORD
        elif update is not None:
            self._status = update
            self._proven = self._proven or (update.last_checkpoint is not None and self._proofs is _PROOF)
        elif self._status is not None and self._status.state not in _STARTED:
            trouble = self._status.error or self._status.message
            if trouble and trouble != self._reported:
                self._reported = trouble
                self._say(f"job {self._handle.key} is {state_text(self._status.state)}: {trouble}")

    def _sentence(self) -> str:
        key, status = self._handle.key, self._status
        if status is None:
            return f"job {key} is submitted; {_ways_on(key)}"
        if status.state is JobState.FAILED:
            raise JobFailed(status.error or f"job {key} failed")
        if status.state in TERMINAL:
            return f"job {key} has ended: {status.state.name}"
        if status.state in _STARTED:
            missing = "its sink has not written anything yet" if self._reached else "no record has reached a sink yet"
            quiet = "" if self._proven else f"; {missing}"
            return f"job {key} is running (attempt {status.attempt}){quiet}"
        reason = f": {status.message or status.error}" if status.message or status.error else ""
        if status.state is JobState.WAITING_FOR_SLOTS:
            by_itself = "It starts automatically when a task manager joins or another job ends"
        else:
            by_itself = "It continues automatically"
        return f"job {key} is submitted and still {state_text(status.state)}{reason}. {by_itself}; {_ways_on(key)}"


def _ways_on(key: str) -> str:
    return f"`lockgate watch {key}` follows it, `lockgate cancel {key}` ends it"


def state_text(state: JobState) -> str:
    """`WAITING_FOR_SLOTS` in readable form."""
    return state.name.lower().replace("_", " ")
