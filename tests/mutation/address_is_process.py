"""A new process with the address of the one before it is taken for that one."""

from __future__ import annotations

from lockgate_coordinator.runtime.task_managers import TaskManagers

from tests.mutation.rewrite import rewrite

rewrite(
    TaskManagers,
    "register",
    'known.incarnation == register.incarnation != ""',
    "known.exchange_address == register.exchange_address",
)
