"""Options of a connector whose values come from the task manager's environment, so that no job graph holds a secret."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from taskmanager.task.program import UserError

_VARIABLE = re.compile(r"\$\{(\w+)\}")


def filled(options: Mapping[str, str], where: str) -> dict[str, str]:
    """The options with what `${NAME}` stands for. where: how messages call the operator. Raises UserError."""
    return {name: _filled(name, value, where) for name, value in options.items()}


def _filled(name: str, value: str, where: str) -> str:
    found = _VARIABLE.fullmatch(value)
    if found is None:
        return value
    if found[1] not in os.environ:
        raise UserError(f"{where}: the option {name} is ${{{found[1]}}}, which the task manager's environment has not")
    return os.environ[found[1]]
