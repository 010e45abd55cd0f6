"""What a connector takes from the task manager's environment, so that no job graph holds a secret."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from urllib.parse import quote

from lockgate_taskmanager.task.program import UserError

_VARIABLE = re.compile(r"\$\{(\w+)\}")


def filled(options: Mapping[str, str], where: str) -> dict[str, str]:
    """The options with `${NAME}` replaced. where: the operator's name in messages. Raises UserError."""
    return {name: _filled(name, value, where) for name, value in options.items()}


def filled_url(url: str, where: str) -> str:
    """The URL with what each `${NAME}` in it stands for, quoted as a part of a URL. Raises UserError."""
    return _VARIABLE.sub(lambda found: quote(_value(found[1], "the URL has", where), safe=""), url)


def _filled(name: str, value: str, where: str) -> str:
    found = _VARIABLE.fullmatch(value)
    return value if found is None else _value(found[1], f"the option {name} is", where)


def _value(name: str, subject: str, where: str) -> str:
    if name not in os.environ:
        raise UserError(f"{where}: {subject} ${{{name}}}, which is not set in the task manager's environment")
    return os.environ[name]
