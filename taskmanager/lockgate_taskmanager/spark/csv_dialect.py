"""What the options of Spark's CSV reader say about the text: which characters divide, quote and escape."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from lockgate_taskmanager.task.program import UserError

_ESCAPED = {"t": "\t", "r": "\r", "b": "\b", "f": "\f", '"': '"', "'": "'", "\\": "\\"}
_UNESCAPED_QUOTES = "STOP_AT_DELIMITER"  # Spark's default


@dataclass(frozen=True, slots=True)
class CsvDialect:
    """quote, comment: empty for none. escape: in front of a quote inside quotes; second_escape: in front of an escape,
    which is none then. skips_blanks: those in front of a value.
    """

    header: bool
    multi_line: bool
    separator: str
    quote: str
    escape: str
    second_escape: str
    comment: str
    skips_blanks: bool


def dialect_of(options: Mapping[str, str], where: str = "") -> CsvDialect:
    """The dialect that Spark's reader has with these options. where: in front of messages. Raises UserError."""
    known = {name.lower(): value for name, value in options.items()}

    def flag(name: str) -> bool:
        value = known.get(name.lower(), "false")
        if value.lower() not in ("true", "false"):
            raise UserError(f"{where}the option {name} is {value!r}; it must be true or false")
        return value.lower() == "true"

    def character(name: str, default: str) -> str:
        value = known.get(name.lower(), default)
        if len(value) > 1:
            raise UserError(f"{where}the option {name} is {value!r}; it must be one character, or empty for none")
        return value.replace("\0", "")

    multi_line, quote, escape = flag("multiLine"), character("quote", '"'), character("escape", "\\")
    unescaped = known.get("unescapedquotehandling", _UNESCAPED_QUOTES)
    if multi_line and unescaped.upper() != _UNESCAPED_QUOTES:
        raise UserError(f"{where}with multiLine the option unescapedQuoteHandling must be {_UNESCAPED_QUOTES}")
    return CsvDialect(
        flag("header"),
        multi_line,
        _separator(known.get("sep", known.get("delimiter", ",")), where),
        quote,
        escape,
        character("charToEscapeQuoteEscaping", escape),
        character("comment", ""),
        flag("ignoreLeadingWhiteSpace"),
    )


def _separator(written: str, where: str) -> str:
    if not re.fullmatch(r"([^\\]|\\[trbf\"'\\])+", written, re.DOTALL):
        raise UserError(
            f"{where}the option sep is {written!r}; give what divides two values, such as ';' or '\\t' (a backslash is"
            " written twice)"
        )
    return re.sub(r"\\(.)", lambda found: _ESCAPED[found[1]], written)
