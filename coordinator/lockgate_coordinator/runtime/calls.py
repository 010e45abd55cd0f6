"""A call to a coordinator: who makes it."""

from __future__ import annotations

from lockgate_common.roles import ANONYMOUS, Principal
from lockgate_common.serving.calls import Call, CallBehaviour

from lockgate_coordinator.runtime.client_limits import EXEMPT, Client


class ClientCall(Call):
    """What the entrance has found out is in it: `caller`, and `client`, whose limits it counts against."""

    caller: Principal = ANONYMOUS
    client: Client = EXEMPT


Behaviour = CallBehaviour[ClientCall]
