"""Client errors: one readable sentence per gRPC status code, and whether a retry makes sense."""

from __future__ import annotations

from dataclasses import dataclass

import grpc
from lockgate_common.proof import UnprovenPeer

from lockgate.errors import UserError

LEADER_METADATA = "lockgate-leader"
COORDINATOR_METADATA = "lockgate-coordinator"
INSTANCE_METADATA = "lockgate-instance"
RETRY_METADATA = "lockgate-retry-ms"
_SECRET_HINT = (
    "; set LOCKGATE_SECRET_FILE (or --secret-file) to the secret file of the cluster, or LOCKGATE_TOKEN_FILE to a "
    "token or JWT"
)
_NOT_LEADER = "not the leader"


def nothing_to_prove(address: str) -> str:
    """Why a job is not submitted: without TLS, and a secret or token, a client cannot identify the coordinator."""
    return f"there is no secret file, so no coordinator at {address} can prove that it is the cluster's{_SECRET_HINT}"


class ClientError(UserError):
    """A call that cannot succeed unchanged. `str()` says why and what to do."""


class ClusterUnreachable(ClientError):
    """No coordinator answered, or there was no leader, until the deadline. `silent`: no coordinator answered at all."""

    def __init__(self, message: str, *, silent: bool = False) -> None:
        super().__init__(message)
        self.silent = silent


class UnknownJob(ClientError):
    """The cluster knows no job with this key."""


class KeyTaken(ClientError):
    """The job key belongs to a job with another graph, or one that started from elsewhere."""


class InvalidJob(ClientError):
    """The cluster rejects the job graph. `problems` has one sentence each."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        self.problems = problems
        if len(problems) == 1:
            super().__init__(f"the cluster refuses the job: {problems[0]}")
        else:
            super().__init__("the cluster refuses the job:\n" + "\n".join(f"  - {problem}" for problem in problems))


class NotAllowed(ClientError):
    """The cluster does not know this client, or does not let it do that."""


class NotAuthenticated(NotAllowed):
    """The cluster does not know this client."""


class NotPossible(ClientError):
    """The state of the job or of the cluster does not allow it now, or it was begun and has failed."""


class JobFailed(ClientError):
    """The job ended as FAILED. `str()` is the job's own error."""

    exit_code = 1


@dataclass(frozen=True, slots=True)
class TryAgain:
    """The call may succeed at the leader: `leader` is its address when the answer named it, else empty.

    pause_s: the leader itself has answered, and asks this client to wait this long; 0 for any other answer
    """

    reason: str
    leader: str = ""
    pause_s: float = 0.0


def classify_rpc_error(error: grpc.RpcError, job_key: str, address: str, instance: str = "") -> TryAgain | ClientError:
    """What to make of a failed call: another try, or an error for the user.

    instance: of the process that was meant, "" when it is not known.
    """
    if isinstance(error, UnprovenPeer):
        return NotAllowed(f"{error} This client uses the secret of --secret-file (or LOCKGATE_SECRET_FILE)")
    code, details = _code(error), _details(error)
    if code is grpc.StatusCode.FAILED_PRECONDITION:
        leader = leader_in(error)
        if leader or details.startswith(_NOT_LEADER):
            return TryAgain(f"{address} is not the leader", leader)
        return NotPossible(details)
    if code is grpc.StatusCode.ABORTED:  # what was asked for was begun, and has failed: a repeat would begin another
        return NotPossible(details)
    if code is grpc.StatusCode.UNAUTHENTICATED and _trailing(error, INSTANCE_METADATA) not in ("", instance):
        return TryAgain(f"{address} is another process now", address)
    if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
        return TryAgain(f"{address}: {details}", leader_in(error))
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return TryAgain(f"{address} does not answer")
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED and (wait_ms := _trailing(error, RETRY_METADATA)).isdecimal():
        return TryAgain(f"{address}: {details}", pause_s=int(wait_ms) / 1000)
    return _final(code, details, job_key, address)


def leader_in(error: grpc.RpcError) -> str:
    """The leader's address in the trailing metadata of a standby's answer, or empty."""
    return _trailing(error, LEADER_METADATA)


def coordinator_in(answer: object) -> str:
    """The advertised address of the coordinator that gave this answer, or empty when it is not included."""
    return _trailing(answer, COORDINATOR_METADATA)


def _trailing(answer: object, name: str) -> str:
    trailing: tuple[tuple[str, str | bytes], ...] = ()
    if isinstance(answer, grpc.Call):
        trailing = tuple(answer.trailing_metadata() or ())
    for key, value in trailing:
        if key == name:
            return value.decode() if isinstance(value, bytes) else str(value)
    return ""


def _final(code: grpc.StatusCode, details: str, job_key: str, address: str) -> ClientError:
    if code is grpc.StatusCode.NOT_FOUND:
        return UnknownJob(f"no job {job_key!r} on this cluster; `lockgate jobs` lists its jobs")
    if code is grpc.StatusCode.ALREADY_EXISTS:
        return KeyTaken(details or f"the job key {job_key!r} belongs to another job")
    if code is grpc.StatusCode.INVALID_ARGUMENT:
        return InvalidJob(
            tuple(line.strip(" -") for line in details.splitlines() if line.strip(" -")) or ("no reason",)
        )
    if code is grpc.StatusCode.PERMISSION_DENIED:
        return NotAllowed(details or "this client may not do that")
    if code is grpc.StatusCode.UNAUTHENTICATED:
        return NotAuthenticated(f"{details or 'the cluster requires its secret'}{_SECRET_HINT}")
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return ClientError(f"{address} is not a Lockgate coordinator of this version ({details})")
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return ClientError(f"this exceeds a limit of the coordinator at {address}: {details}")
    return ClientError(f"the coordinator at {address} failed ({code.name}): {details}; see its log for details")


def _code(error: grpc.RpcError) -> grpc.StatusCode:
    return error.code() if isinstance(error, grpc.Call) else grpc.StatusCode.UNKNOWN


def _details(error: grpc.RpcError) -> str:
    return (error.details() or "") if isinstance(error, grpc.Call) else str(error)
