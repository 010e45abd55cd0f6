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
_QUERY_BEFORE_AT = re.compile(
    rf"(?P<user>{_SCHEME}[^/?#:@\s'\"<>]*:)" r"(?!\d*[/?#]|\$\{\w+\}@)[^/\s'\"<>@]++@", re.IGNORECASE
)
_USER = re.compile(rf"{_SCHEME}[^/:]*:", re.IGNORECASE)
_STRAY_AT = re.compile(
    r"[\w+]++://[^:/]*+:"
    r"(?:[^@]*+@(?:[^?]*|[^=]*)@|[^@?]*+(?:\?(?!\w++=)[^@?]*+)*+\?\w++=[^@]*+@)"
)
"""Behind `user:password@` another one that no option's value has; or the first one is in an option's value."""
_ORACLE = re.compile(r"(?P<user>(?<!\w)jdbc:oracle:\w++:[^/\s@'\"]++/)[^\s@'\"]++(?=@)")
_NAME = re.compile(
    r"(?<![\w.%-])(?P<word>[\w.%-]++)"
    r"(?P<between>\s*(?:=>?|->)\s*|\\*['\"]\s*(?:=>?|:|->)\s*|:(?![:/])[ \t]*|(?<=\w)[ \t]+(?!-))"
)
_KINDS = "access|account|api|client|customer|encryption|master|private|sas|secret|shared|signing|ssh|ssl|storage"
_SECRET_NAME = re.compile(
    rf"password|passwd|passphrase|secret|token(?!iz)|credential|signature|(?:{_KINDS})[_.-]?key"
    r"|jaas[_.-]?config|oauthbearer[_.-]?config|pwd$|(?:^|[_.-]|db)pass$|^sig$",
    re.IGNORECASE,
)
_IN_SECRET_NAMES = ("pass", "pwd", "secret", "token", "credential", "sig", "key", "config", "auth", "code")
"""Each name that holds a secret contains one of these in lower case, if it is ASCII: most lines of a log do not."""
_OF_QUERY = re.compile(r"(?i)(?:[\w-]*(?:key|auth)|code)")
"""Names in the query of a URL, where a key opens something; elsewhere it is often a column's."""
_OPEN_VALUE = r"(?:[^\s&;,'\"]|[&;,](?=[^\s&;,'\"=]++(?:[\s&;,'\"]|\Z)))"
"""What separates one setting from the next belongs to the value unless a name and `=` follow."""
_VALUE = re.compile(
    r"(?P<open>['\"])(?P<quoted>(?:\\.|(?P=open){2}|(?!(?P=open))[^\\])*+)(?P=open)"
    r"|(?P<escaped>\\++['\"])(?P<inside>.*?)(?P=escaped)"
    rf"|['\"]?(?P<value>\$\{{\w+\}}|{_OPEN_VALUE}*(?<![<>(){{}}\[\]=]))",
    re.DOTALL,
)
_PEM = re.compile(
    r"(?P<begin>-----BEGIN [A-Z ]*PRIVATE KEY-----).*?(?P<end>-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL
)
_BEARER = re.compile(
    r"(?P<name>\b(?:Bearer|Basic) |(?i:authorization)\\*['\"]?\s*[:=]\s*\\*['\"]?(?i:bearer|basic|digest|negotiate)\s)"
    r"[^\s<'\"\\]+",
)
_TOKEN = re.compile(r"(?<![\w.-])(?:lockgate\.[0-9a-f]++\.[0-9a-f]{16,}+\.[0-9a-f]++|eyJ[\w-]++\.[\w-]++\.[\w-]*+)")
"""A token of Lockgate's, and a JWT, wherever they stand."""
_VARIABLE = re.compile(r"\$\{\w+\}")
_NO_SECRET = re.compile(r"\$\{\w+\}|\*\*\*.*", re.DOTALL)
_FENCING = re.compile(r"(?i)token\W*$")
"""Tokens that are whole numbers order leaders; a password may be one."""
_OF_FILE = re.compile(r"(?i)(?:file|path|dir|folder|location)$")


def is_secret_name(name: str) -> bool:
    """True for the name of a setting, option or parameter whose value is a secret."""
    return bool(_SECRET_NAME.search(name)) and not _OF_FILE.search(name)


def bare(uri: str, options: str = "?") -> str:
    """The URI without user, password, and whatever follows `options`. A local path is returned as it is."""
    scheme, mark, rest = uri.partition("://")
    if not mark:
        return uri
    authority, slash, path = rest.partition(options)[0].partition("/")
    return f"{scheme}://{authority.rpartition('@')[2]}{slash}{path}"


def has_stray_at(url: str) -> bool:
    """True when SQLAlchemy takes a part of the password, which has an `@` that is not encoded, for the host.

    Drivers repeat the host in their errors, where it is not recognized as a secret.
    """
    return bool(_STRAY_AT.match(url))


def masked(text: str) -> str:
    """The text without what is secret in it. The same again changes nothing."""
    text = _PEM.sub(rf"\g<begin>{MASK}\g<end>", text)
    if "://" in text:
        text = _BEFORE_AT.sub(_without_slashes, _LOGIN.sub(_without_login, text))
        text = _QUERY_BEFORE_AT.sub(rf"\g<user>{MASK}@", text)
    text = _ORACLE.sub(rf"\g<user>{MASK}", text)
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
    if text.isascii() and not any(map(text.lower().__contains__, _IN_SECRET_NAMES)):
        return text  # in a twentieth of the time
    parts, done, at = [], 0, 0
    while name := _NAME.search(text, at):
        at = name.end()
        value = _VALUE.match(text, at) if _holds_secret(name) else None
        if value is not None:
            parts += [text[done:at], _without_value(name[0], value)]
            done = at = value.end()
    return "".join((*parts, text[done:]))


def _holds_secret(name: re.Match[str]) -> bool:
    """Only an option of a command has its value behind a space."""
    word, before = name["word"], name.string[name.start() - 1 : name.start()]
    if name["between"].isspace() and not word.startswith("--"):
        return False
    return is_secret_name(word) or (before in ("?", "&") and bool(_OF_QUERY.fullmatch(word)))


def _without_value(name: str, found: re.Match[str]) -> str:
    quote = found["open"] or found["escaped"] or ""
    value = found["quoted"] or found["inside"] or found["value"] or ""
    is_fencing = value.isdecimal() and _FENCING.search(name)
    if not value or _NO_SECRET.fullmatch(value) or is_fencing:
        return found[0]
    return f"{quote}{MASK}{quote}"
