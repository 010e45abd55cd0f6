"""What a connector takes from the task manager's environment, so that no job graph holds a secret."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from urllib.parse import quote

from lockgate_taskmanager.spark.limits import UNLIMITED, Limits
from lockgate_taskmanager.task.program import UserError

_VARIABLE = re.compile(r"\$\{(\w+)\}")
_CREDENTIAL = re.compile(r"password|passwd|secret|token|key|credential|username", re.IGNORECASE)
_BEFORE_PASSWORD = re.compile(r"[\w+.-]+://[^:/?#@]*:")
_BEHIND_PASSWORD = re.compile(r"@[^@]*$")
_BEFORE_VALUE = re.compile(r"[^?]*\?(?:[^&]*&)*(\w+)=")


def filled(options: Mapping[str, str], where: str, limits: Limits = UNLIMITED) -> dict[str, str]:
    """The options with `${NAME}` replaced. where: the operator's name in messages. Raises UserError."""
    return {name: _filled(name, value, where, limits) for name, value in options.items()}


def filled_url(url: str, where: str, limits: Limits = UNLIMITED) -> str:
    """The URL with what each `${NAME}` in it stands for, quoted as a part of a URL. Raises UserError."""

    def value(found: re.Match[str]) -> str:
        is_credential = _is_credential(url[: found.start()], url[found.end() :])
        return quote(_value(found[1], "the URL has", where, limits, is_credential), safe="")

    return _VARIABLE.sub(value, url)


def _filled(name: str, value: str, where: str, limits: Limits) -> str:
    found = _VARIABLE.fullmatch(value)
    if found is None:
        return value
    return _value(found[1], f"the option {name} is", where, limits, bool(_CREDENTIAL.search(name)))


def _value(name: str, subject: str, where: str, limits: Limits, is_credential: bool) -> str:
    limits.check_variable(name, f"{where}: {subject}", is_credential)
    if name not in os.environ:
        raise UserError(f"{where}: {subject} ${{{name}}}, which is not set in the task manager's environment")
    return os.environ[name]


def _is_credential(before: str, behind: str) -> bool:
    """True for the password of a URL, and for such an option behind its question mark."""
    if _BEFORE_PASSWORD.fullmatch(before) and _BEHIND_PASSWORD.match(behind):
        return True
    option = _BEFORE_VALUE.fullmatch(before)
    return option is not None and bool(_CREDENTIAL.search(option[1]))
