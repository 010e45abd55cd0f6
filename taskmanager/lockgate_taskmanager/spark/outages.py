"""Which exceptions of the author's code report an outage: something that the code uses is away or refuses for now.

Such an error is no record's fault. Left out, or written as a dead letter, the record would be lost to a moment without
a database. The standard library has types for outages; database drivers (PEP 249) and clients of servers have their
own, which are recognised by name: of an error from a Python worker only the name is known.
"""

from __future__ import annotations

import builtins
import re

_STANDARD = (OSError, MemoryError)
# PEP 249: of the database's operation, of the driver, of the database itself. Refused data has other types.
_DATABASE = frozenset({"InterfaceError", "InternalError", "OperationalError"})
_WORDS = re.compile(
    r"Timeout|TimedOut|Deadline|Connect|Disconnect|Network|Unavailable|NotAvailable|Unreachable|NoBrokers"
    r"|Throttl|TooManyRequests|SlowDown|MaxRetr|RetryError|ServerError|BrokenPool|ProxyError|RemoteError"
)


def is_outage(error: BaseException) -> bool:
    """Whether the exception, or a type that it is derived from, reports an outage."""
    return is_type_of_outage(type(error))


def is_type_of_outage(kind: type) -> bool:
    """The same by its type."""
    return issubclass(kind, _STANDARD) or any(_is_name_of_outage(base.__name__) for base in kind.__mro__)


def names_outage(name: str) -> bool:
    """The same by the name of a type, with its module or without."""
    last = name.rpartition(".")[2]
    kind = getattr(builtins, last, None)
    if isinstance(kind, type):
        return issubclass(kind, _STANDARD)
    return _is_name_of_outage(last)


def _is_name_of_outage(name: str) -> bool:
    return name in _DATABASE or _WORDS.search(name) is not None
