"""The role that each rpc requires. Pure."""

from __future__ import annotations

from enum import Enum

from lockgate_common.roles import OWNER, Principal, Role
from lockgate_proto.rpc import full_name

FORWARDED_METADATA = "lockgate-forwarded"
"""What a standby says when it asks the leader on behalf of its own caller."""


class Access(Enum):
    """Access that does not depend on roles."""

    FREE = "any caller"
    LOCAL = "any caller on this machine; from elsewhere, callers that may read"
    PROCESS = "a process of the cluster, which knows its secret"


_JOBS, _CONTROL, _FOLLOW = (full_name(name) for name in ("JobService", "ControlService", "FollowService"))
_HEALTH, _REFLECTION = "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"

HEALTH_CHECK = f"/{_HEALTH}/Check"  # supervisors and load balancers ask it, whatever else their address asks

ACCESS: dict[str, Role | Access] = {
    f"/{_JOBS}/GetLeader": Access.FREE,
    f"/{_JOBS}/Get": Role.READ,
    f"/{_JOBS}/List": Role.READ,
    f"/{_JOBS}/Watch": Role.READ,
    f"/{_JOBS}/ListCheckpoints": Role.READ,
    f"/{_JOBS}/GetCheckpoint": Role.READ,
    f"/{_JOBS}/GetStory": Role.READ,
    f"/{_JOBS}/GetCluster": Role.READ,
    f"/{_JOBS}/Submit": Role.SUBMIT,  # and CODE where the graph has code in it
    f"/{_JOBS}/QueryState": Role.SUBMIT,  # a job that starts from the checkpoint could write it all out
    f"/{_JOBS}/Cancel": Role.OPERATE,
    f"/{_JOBS}/Release": Role.OPERATE,
    f"/{_JOBS}/TriggerSavepoint": Role.OPERATE,
    f"/{_JOBS}/Stop": Role.OPERATE,
    f"/{_JOBS}/Rescale": Role.OPERATE,
    f"/{_JOBS}/DisposeSavepoint": Role.OPERATE,
    f"/{_CONTROL}/Connect": Access.PROCESS,
    f"/{_FOLLOW}/Follow": Access.PROCESS,
    HEALTH_CHECK: Access.FREE,
    f"/{_HEALTH}/Watch": Access.FREE,
    f"/{_REFLECTION}/ServerReflectionInfo": Access.LOCAL,
}


def is_free(method: str, *, everything: bool) -> bool:
    """True for a method that needs no credentials. everything: the port can be reached from other machines."""
    access = ACCESS.get(method, Access.PROCESS)
    return access is Access.FREE or (access is Access.LOCAL and not everything)


def refusal(method: str, caller: Principal, *, is_free: bool) -> str:
    """Why a caller may not call this; "" when it may. Methods that are not in the table are for processes only."""
    access = ACCESS.get(method, Access.PROCESS)
    if is_free or caller == OWNER:
        return ""
    if access is Access.PROCESS:
        return "this is for the cluster's own processes, which know its secret"
    return caller.refusal(access if isinstance(access, Role) else Role.READ)


def is_of_a_process(method: str, caller: Principal, *, forwarded: bool) -> bool:
    """True for calls that only the cluster's own processes make. Clients that know the secret are clients."""
    return caller == OWNER and (forwarded or ACCESS.get(method, Access.PROCESS) is Access.PROCESS)


def changes(method: str) -> bool:
    """True for a method that changes a job, and so belongs in the audit log."""
    return ACCESS.get(method) in (Role.SUBMIT, Role.OPERATE)
