"""The state of one key of a process function as bytes: whole, or with a row of its own for each element of its maps
and lists.

    whole      the pickle of (states by name, event time timers, processing time timers)
    packed     PACKED (1 byte), length of its head (4 bytes, little-endian), its head, value and expiry of each state
    apart      MARK (1 byte), length of the head (4 bytes, little-endian), the head, the elements
    its head   of each state the code of its values in `struct` and its name, in UTF-8, separated by spaces
    head       the pickle of (the other states, both timers, for each state that is apart (its number, whether a map))
    element    number of its state, its position, the key in a map or None, its entry: four pickled values, written so
               that elements one after the other are the items of one pickled list

Packed are states that are single numbers, if all are there and the key has no timers: rows of many keys are read and
written as columns, see `packed_payloads`.

The row of a key that is apart ends after the head; who reads it appends the rows of its elements, in order of their
names: number (2 bytes), position (6 bytes), big-endian. Positions rise in the order of a map or list.

All values are plain, and an unpickler that accepts nothing else reads them. Runs in Spark's Python workers too, which
need no installation of Lockgate: the module travels with the function, and imports only the standard library.
"""

from __future__ import annotations

import io
import pickle
import struct
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import compress, islice
from operator import is_, is_not
from typing import Any, NamedTuple

MARK, PACKED = b"\x01", b"\x02"  # a pickle begins with another byte
ALL = b""  # a name for all elements of a key, which are removed
LARGEST_WHOLE = 4096
"""Bytes of the row of a key beyond which its maps and lists are written apart: about a block of a database."""
_PREFIX_BYTES = 5
_FIELDS = 4  # of an element
_PLAIN = frozenset(
    {
        *(("datetime", name) for name in ("date", "datetime", "time", "timedelta", "timezone")),
        ("decimal", "Decimal"),
    }
)

Elements = list[tuple[bytes, bytes | None]]
"""Names and contents of elements; None: removed."""


@dataclass
class Apart:
    """A state whose elements are rows: as it was read, or empty.

    entries: a copy; positions: of the entries, in their order.
    """

    number: int
    entries: dict[Any, Any] | list[Any]
    positions: list[int]

    def changes(self, now: dict[Any, Any] | list[Any] | None) -> Elements:
        """What has to be written so that the entries are those of `now`. Keeps the order."""
        before, after = _by_key(self.entries), {} if now is None else _by_key(now)
        same = len(before) if len(before) <= len(after) and all(map(is_, before, after)) else 0  # keys, as a rule all
        changed: list[tuple[int, Any, Any]] = []
        if same:
            places = list(compress(range(same), map(is_not, before.values(), after.values())))
            keys, entries = (list(after), list(after.values())) if places else ([], [])
            changed += ((self.positions[place], keys[place], entries[place]) for place in places)
        old = dict(zip(islice(before, same, None), self.positions[same:], strict=True))
        last, following = -1, self.positions[-1] + 1 if self.positions else 0
        for key, entry in islice(after.items(), same, None):
            position = old.get(key, -1)
            if position > last:
                last = old.pop(key)
                if before[key] is entry:
                    continue
            else:  # new, or removed and put in again, which is at the end
                last, following = following, following + 1
            changed.append((last, key, entry))
        number, is_map = self.number, isinstance(now, dict)
        found: Elements = [
            (name_of(number, position), _element((number, position, key if is_map else None, entry)))
            for position, key, entry in changed
        ]
        found += ((name_of(number, position), None) for position in old.values())
        return found


class Content(NamedTuple):  # one for each visit of a key: a frozen dataclass takes longer to make
    """The state of a key. states: entries by name; event, wall: timers; apart: of which states elements are rows."""

    states: dict[str, Any]
    event: list[int]
    wall: list[int]
    apart: dict[str, Apart]


def packed_head(codes: Mapping[str, str]) -> bytes:
    """What the packed rows of these states begin with. codes: of the values of each state, by name."""
    head = " ".join(f"{code}{name}" for name, code in codes.items()).encode()
    return b"".join((PACKED, len(head).to_bytes(_PREFIX_BYTES - 1, "little"), head))


def read(payload: bytes | None) -> Content:
    """The state of a key, from its row with its elements. Raises what an unpickler or `struct` raises."""
    if payload is None:
        return Content({}, [], [], {})
    if payload[:1] == PACKED:
        return Content(_unpacked(payload), [], [], {})
    if payload[:1] != MARK:
        states, event, wall = PlainUnpickler(io.BytesIO(payload)).load()
        return Content(states, event, wall, {})
    behind = _PREFIX_BYTES + int.from_bytes(payload[1:_PREFIX_BYTES], "little")
    states, event, wall, layout = _load(payload[_PREFIX_BYTES:behind])
    items = _load(b"".join((b"\x80\x05](", payload[behind:], b"e.")))
    numbers, apart = items[::_FIELDS], {}
    for name, (number, is_map) in layout.items():
        first, behind = (_FIELDS * bisect_left(numbers, bound) for bound in (number, number + 1))
        positions, keys, entries = (items[first + field : behind : _FIELDS] for field in range(1, _FIELDS))
        found = dict(zip(keys, entries, strict=True)) if is_map else entries
        states[name], apart[name] = found, Apart(number, found.copy(), positions)
    return Content(states, event, wall, apart)


def written(
    states: dict[str, Any], event: list[int], wall: list[int], known: dict[str, Apart], by_element: bool
) -> tuple[bytes, Elements]:
    """The row of a key, and what of its elements has changed since it was read.

    known: what was apart when it was read; by_element: elements may be rows of their own.
    """
    if not known:
        payload = pickle.dumps((states, event, wall), 5)
        if len(payload) <= LARGEST_WHOLE or not by_element or not any(map(_has_elements, states.values())):
            return payload, []
    elements: Elements = [] if known else [(ALL, None)]  # of a row that has expired there may be some
    for name, before in known.items():
        elements += before.changes(states.get(name))
    apart = {name: before for name, before in known.items() if name in states}
    head = _head(states, event, wall, apart)
    if len(head) > LARGEST_WHOLE or not known:
        more = [name for name in states if name not in apart and _has_elements(states[name])]
        for number, name in enumerate(more, max((before.number for before in apart.values()), default=-1) + 1):
            apart[name] = Apart(number, type(states[name])(), [])
            elements += apart[name].changes(states[name])
        head = _head(states, event, wall, apart)
    if not apart:
        return pickle.dumps((states, event, wall), 5), []
    return b"".join((MARK, len(head).to_bytes(_PREFIX_BYTES - 1, "little"), head)), elements


def _unpacked(payload: bytes) -> dict[str, Any]:
    """A packed row of states that are perhaps declared no longer."""
    behind = _PREFIX_BYTES + int.from_bytes(payload[1:_PREFIX_BYTES], "little")
    codes = {item[1:]: item[:1] for item in payload[_PREFIX_BYTES:behind].decode().split(" ")}
    values = struct.unpack_from("<" + "".join(f"{code}q" for code in codes.values()), payload, behind)
    return dict(zip(codes, zip(values[::2], values[1::2], strict=True), strict=True))


def whole(payload: bytes) -> bytes:
    """A row with its elements as one that has none apart."""
    content = read(payload)
    return pickle.dumps((content.states, content.event, content.wall), 5)


def name_of(number: int, position: int) -> bytes:
    """The name of an element: in the order of states and positions."""
    return number.to_bytes(2, "big") + position.to_bytes(6, "big")


def _head(states: dict[str, Any], event: list[int], wall: list[int], apart: Mapping[str, Apart]) -> bytes:
    others = {name: found for name, found in states.items() if name not in apart}
    layout = {name: (known.number, isinstance(states[name], dict)) for name, known in apart.items()}
    return pickle.dumps((others, event, wall, layout), 5)


def _has_elements(found: Any) -> bool:
    return isinstance(found, dict | list)


def _by_key(entries: dict[Any, Any] | list[Any]) -> dict[Any, Any]:
    """Those of a list by identity: an entry is never changed, only replaced."""
    return entries if isinstance(entries, dict) else {id(entry): entry for entry in entries}


def _element(fields: tuple[Any, ...]) -> bytes:
    """Without what a pickle has around its values, and without references to earlier ones."""
    target = io.BytesIO()
    pickler = pickle.Pickler(target, 5)
    pickler.fast = True
    pickler.dump(fields)
    data = target.getvalue()
    start = 12 if data[2:3] == pickle.FRAME else 3  # behind the version, the frame, and the mark of the tuple
    return data[start:-2]  # before the tuple's end and the pickle's


class PlainUnpickler(pickle.Unpickler):
    """Knows the types of declared states, and no other."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _PLAIN:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"the state of a key holds a {module}.{name}, which is not a plain value")


def _load(data: bytes) -> Any:
    return PlainUnpickler(io.BytesIO(data)).load()
