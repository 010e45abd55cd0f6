"""How a runnable example describes itself."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lockgate import Job
from lockgate.client import Client
from lockgate.errors import UserError


class NotHere(UserError):
    """What an example needs is not on this machine. `str()` says what, and how to get it."""


class Wrong(Exception):
    """What a step has seen and must not be, as a sentence: the example's result is wrong."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a run of an example takes place. `input` and `output` are folders that exist; every process sees them."""

    input: Path
    output: Path
    seed: int

    def random(self) -> random.Random:
        """Fresh at each call, always with the same seed: input and check can draw the same numbers."""
        return random.Random(self.seed)


@dataclass(frozen=True, slots=True)
class Scene:
    """What a step has at hand. key: of the job that runs; say: shows a line on the screen."""

    client: Client
    key: str
    place: Place
    say: Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Step:
    """A step that is performed while the job runs.

    at: share of the input that is read by then, 0 to 1; text: one line for the screen; do: runs on its own thread,
    and returns the key of another job when that one continues the work, with sources of the same ids. It
    raises Wrong for what must not be. With `--kill` one of the steps, chosen by the seed, is struck while it is under
    way. A step has to survive that: every call of the client does.
    """

    at: float
    text: str
    do: Callable[[Scene], str | None]


@dataclass(frozen=True)
class Example:
    """One example. A module in `examples/runnable/` holds one as `EXAMPLE`, under the name of the module.

    line: what it shows, in one line.
    make_input: fills `place.input` and returns how many records the sources will read in all.
    pipeline: the job. It ends on its own, runs long enough (3 s or more) for a kill in the middle, and writes below
    `place.output`. Its key is the runner's business.
    check: compares `place.output` with what the input says, recomputed without Lockgate. Returns a sentence for each
    thing that is wrong: none when the result is right.
    steps: actions during the run, in order.
    summary: a line on the result for the screen, beside the verdict; empty for none.
    beside: what has to run beside the cluster, entered before `make_input` and left after `check`, such as a database.
    Raises NotHere where that cannot be.
    cluster: fields of lockgate_devtools.cluster.ClusterOptions that differ from the defaults.
    """

    line: str
    make_input: Callable[[Place], int]
    pipeline: Callable[[Place], Job]
    check: Callable[[Place], list[str]]
    steps: tuple[Step, ...] = ()
    summary: Callable[[Place], str] = lambda _: ""
    beside: Callable[[], AbstractContextManager[object]] = nullcontext
    cluster: Mapping[str, Any] = field(default_factory=dict)


def json_rows(files: Iterable[Path]) -> Iterator[dict[str, Any]]:
    """Every line of files of JSON lines."""
    for path in files:
        yield from map(json.loads, path.read_text(encoding="utf-8").splitlines())


def compare(found: Mapping[Any, Any], wanted: Mapping[Any, Any], what: str, most: int = 5) -> list[str]:
    """One sentence for each differing entry, in both directions; at most `most`, and the number of others."""
    if not wanted:
        return [f"there is no {what} to compare with"]
    wrong = [key for key in sorted(found.keys() | wanted.keys(), key=repr) if found.get(key) != wanted.get(key)]
    listed = [f"{what} {key!r} is {found.get(key)!r}, the input says {wanted.get(key)!r}" for key in wrong[:most]]
    return listed + ([f"{len(wrong) - most} more of {len(wanted)} differ"] if len(wrong) > most else [])
