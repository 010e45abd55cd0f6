"""Secrets in text that others read: passwords, keys and tokens in URLs and in `name=value` are replaced by `***`.

It is the last check of everything that leaves a process: logs, errors of jobs and commands, answers of services. A
message should still be made without details that its readers do not need.
"""

from __future__ import annotations

import logging
import re

MASK = "***"

_NAME = (
    r"(?:[\w.%-]*(?:password|passwd|passphrase|secret|token|access[_.-]?key|account[_.-]?key|api[_.-]?key|credential"
    r"|signature|sas[_.-]?key|jaas[_.-]?config)[\w.%-]*|pwd|pass|sig)"
)
_LOGIN = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*://)(?P<login>[^/?#\s'\"<>]*)@", re.IGNORECASE)
_LOGIN_WITH_SLASHES = re.compile(
    r"(?P<scheme>[a-z][a-z0-9+.-]*://[^/?#\s:@]*:)[^?#\s'\"<>@/]*/[^?#\s'\"<>@]*@", re.IGNORECASE
)
_VALUE = r"(?:(?P<open>['\"])(?P<quoted>.*?)(?P=open)|(?P<value>\$\{\w+\}|[^\s&;,'\"<>(){}\[\]]+))"
_PAIR = re.compile(rf"(?P<name>(?<![\w.%-]){_NAME}(?:\s*=\s*|(?<=['\"]):\s*|['\"]\s*[:=]\s*)){_VALUE}", re.IGNORECASE)
_BEARER = re.compile(r"(?P<name>\bBearer )[^\s<'\"]+")
_VARIABLE = re.compile(r"\$\{\w+\}")
_NO_SECRET = re.compile(r"\$\{\w+\}|\*\*\*|\d{1,12}")
"""What stands for a secret, and fencing tokens."""
_OF_FILE = re.compile(r"(?i)(file|path|dir|location)['\"]?\s*[:=]\s*$")


def masked(text: str) -> str:
    """The text without what is secret in it. The same again changes nothing."""
    if "://" in text:
        text = _LOGIN.sub(_without_login, text)
        text = _LOGIN_WITH_SLASHES.sub(lambda found: f"{found['scheme']}{MASK}@", text)
    return _PAIR.sub(_without_value, _BEARER.sub(rf"\g<name>{MASK}", text))


def _without_login(found: re.Match[str]) -> str:
    name, colon, password = found["login"].partition(":")
    if _VARIABLE.fullmatch(password) or not (colon or found["scheme"].lower().startswith("http")):
        return found[0]  # without a password it is a user, or a container (abfs)
    return f"{found['scheme']}{name if colon else MASK}{colon and ':' + MASK}@"


def _without_value(found: re.Match[str]) -> str:
    value = found["quoted"] if found["open"] else found["value"]
    if not value or _NO_SECRET.fullmatch(value) or _OF_FILE.search(found["name"]):
        return found[0]
    quote = found["open"] or ""
    return f"{found['name']}{quote}{MASK}{quote}"


class MaskingFormatter(logging.Formatter):
    """Formats as logging does, exceptions included, and masks the whole."""

    def format(self, record: logging.LogRecord) -> str:
        """The record's text."""
        return masked(super().format(record))


def mask_logs() -> None:
    """Has every handler of the root logger mask what it writes. After logging.basicConfig."""
    for handler in logging.getLogger().handlers:
        known = handler.formatter or logging.Formatter()
        handler.setFormatter(MaskingFormatter(known._fmt, known.datefmt))
