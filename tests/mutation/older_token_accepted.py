"""A leader accepts what was sent to the leaders before it."""

from __future__ import annotations

import dataclasses

from lockgate_coordinator.runtime.link import TaskManagerLink
from lockgate_coordinator.runtime.task_managers import TaskManagers
from lockgate_proto.messages import TaskManagerMessage

_received = TaskManagers.received


def _whatever_token(self: TaskManagers, link: TaskManagerLink, message: TaskManagerMessage) -> None:
    _received(self, link, dataclasses.replace(message, token=max(message.token, self._token)))


TaskManagers.received = _whatever_token  # type: ignore[method-assign]
