"""Secrets in text that others read: passwords, keys and tokens in URLs and in `name=value` are replaced by `***`.

It is the last check of everything that leaves a process: logs, errors of jobs and commands, answers of services. A
message should still be made without details that its readers do not need.
"""

from __future__ import annotations

import re

MASK = "***"

# Others choose the texts, so each pattern takes time in proportion to them: a run of characters is looked at from its
# first one alone (the negative lookbehinds), and never given back in part (`++`).
_SCHEME = r"(?<![a-z0-9+.-])[a-z0-9+.-]++://"
_LOGIN = re.compile(rf"(?P<scheme>{_SCHEME})(?P<login>[^/?#\s'\"<>]*)@", re.IGNORECASE)
_BEFORE_AT = re.compile(r"(?<![^?#\s'\"<>@])[^?#\s'\"<>@]++@")
_USER = re.compile(rf"{_SCHEME}[^/:]*:", re.IGNORECASE)
_NAME = re.compile(r"(?<![\w.%-])(?P<word>[\w.%-]++)(?:\s*=\s*|['\"]\s*[:=]\s*)")
_SECRET_NAME = re.compile(
    r"password|passwd|passphrase|secret|token|access[_.-]?key|account[_.-]?key|api[_.-]?key|credential|signature"
    r"|sas[_.-]?key|jaas[_.-]?config|^(pwd|pass|sig)$",
    re.IGNORECASE,
)
_VALUE = re.compile(r"(?P<open>['\"])(?P<quoted>.*?)(?P=open)|(?P<value>\$\{\w+\}|[^\s&;,'\"<>(){}\[\]]+)")
_BEARER = re.compile(r"(?P<name>\b(?:Bearer|Basic) )[^\s<'\"]+")
_TOKEN = re.compile(r"(?<![\w.-])(?:lockgate\.[0-9a-f]++\.[0-9a-f]{16,}+\.[0-9a-f]++|eyJ[\w-]++\.[\w-]++\.[\w-]*+)")
"""A token of Lockgate's, and a JWT, wherever they stand."""
_VARIABLE = re.compile(r"\$\{\w+\}")
_NO_SECRET = re.compile(r"\$\{\w+\}|\*\*\*")
_FENCING = re.compile(r"(?i)token\W*$")
"""Tokens that are whole numbers order leaders; a password may be one."""
_OF_FILE = re.compile(r"(?i)(file|path|dir|location)['\"]?\s*[:=]\s*$")


def masked(text: str) -> str:
    """The text without what is secret in it. The same again changes nothing."""
    if "://" in text:
        text = _BEFORE_AT.sub(_without_slashes, _LOGIN.sub(_without_login, text))
    return _without_values(_TOKEN.sub(MASK, _BEARER.sub(rf"\g<name>{MASK}", text)))


def _without_login(found: re.Match[str]) -> str:
    name, colon, password = found["login"].partition(":")
    if _VARIABLE.fullmatch(password) or not (
        colon or found["scheme"].lower().lstrip("0123456789+.-").startswith("http")
    ):
        return found[0]  # without a password it is a user, or a container (abfs)
    return f"{found['scheme']}{name if colon else MASK}{colon and ':' + MASK}@"


def _without_slashes(found: re.Match[str]) -> str:
    """A login with a password that has slashes in it."""
    user = _USER.search(found[0])
    return f"{found[0][: user.end()]}{MASK}@" if user and "/" in found[0][user.end() :] else found[0]


def _without_values(text: str) -> str:
    parts, done, at = [], 0, 0
    while name := _NAME.search(text, at):
        at = name.end()
        value = _VALUE.match(text, at) if _SECRET_NAME.search(name["word"]) else None
        if value is not None:
            parts += [text[done:at], _without_value(name[0], value)]
            done = at = value.end()
    return "".join((*parts, text[done:]))


def _without_value(name: str, found: re.Match[str]) -> str:
    value = found["quoted"] if found["open"] else found["value"]
    is_fencing = value.isdecimal() and _FENCING.search(name)
    if not value or _NO_SECRET.fullmatch(value) or is_fencing or _OF_FILE.search(name):
        return found[0]
    quote = found["open"] or ""
    return f"{quote}{MASK}{quote}"
