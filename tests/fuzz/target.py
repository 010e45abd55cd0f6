"""What is fuzzed, and how each case is judged."""

from __future__ import annotations

import logging
import math
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction

from tests.fuzz.mutator import mutated

CASE_S = 30.0
_LONGEST_REFUSAL = 8_000  # characters


class Finding(AssertionError):
    """A case that was not answered as it has to be. The message has the command that repeats it."""

    def __init__(self, message: str, number: int) -> None:
        super().__init__(message)
        self.number = number


@dataclass(frozen=True)
class Target:
    """feed: takes the bytes of one case; returns when they were taken, raises one of `refusals` when they were not.

    samples: bytes that are taken; with `is_lenient` they are only near to that, and counted is what feed returns, or a
    refusal's `kind`. cost: how many inputs of others one of these stands for. once: further cases, not to be damaged.
    """

    name: str
    feed: Callable[[bytes], object]
    samples: Sequence[bytes]
    refusals: tuple[type[Exception], ...]
    is_lenient: bool = False
    cost: int = 1
    once: Sequence[bytes] = ()


def case(target: Target, seed: int, number: int) -> bytes:
    """The bytes of one case: the samples as they are first, then damaged ones."""
    given = (*target.once, *target.samples)
    if number < len(given):
        return given[number]
    return mutated(random.Random(f"{seed} {target.name} {number}"), target.samples)


def each_of(targets: Sequence[Target], inputs: int) -> int:
    """How many inputs for each target of cost 1, so that there are so many or a few more in all."""
    return math.ceil(inputs / sum(Fraction(1, target.cost) for target in targets))


def share(target: Target, each: int) -> int:
    """How many of these are inputs of a target."""
    return -(-each // target.cost)


def run(target: Target, seed: int, numbers: range) -> Counter[str]:
    """Feeds the cases; how many were taken and how many refused. Raises Finding at the first that went wrong."""
    counts: Counter[str] = Counter()
    with logged_tracebacks() as logged:
        for number in numbers:
            data = case(target, seed, number)
            began = time.monotonic()
            with finding(target.name, seed, number, data):
                counts[_fed(target, data, is_sample=number < len(target.samples))] += 1
                assert not logged, f"the log has a traceback: {logged[0]}"
                assert time.monotonic() - began < CASE_S, f"it took {time.monotonic() - began:.0f} s"
    return counts


def _fed(target: Target, data: bytes, *, is_sample: bool) -> str:
    """What came of a case."""
    refusal: Exception
    try:
        said = target.feed(data)
        return str(said) if target.is_lenient else "taken"
    except target.refusals as error:
        refusal = error
    check_sentence(str(refusal))
    assert target.is_lenient or not is_sample, f"a sample is refused: {refusal}"
    return str(getattr(refusal, "kind", "refused"))


@contextmanager
def finding(name: str, seed: int, number: int, data: bytes) -> Iterator[None]:
    """Says of any error which case it was."""
    try:
        yield
    except Exception as error:
        raise Finding(
            f"{type(error).__name__}: {error}\n  of {len(data)} bytes: {data[:80]!r}\n  again: python -m tests.fuzz"
            f" --target '{name}' --seed {seed} --case {number}",
            number,
        ) from error


def check_sentence(text: str) -> None:
    """A refusal is for people: it says something, is not endless, and no stack trace."""
    assert text.strip(), "the refusal says nothing"
    assert len(text) <= _LONGEST_REFUSAL, f"the refusal has {len(text)} characters: {text[:200]}"
    assert "Traceback (most recent call last)" not in text, text


@contextmanager
def logged_tracebacks() -> Iterator[list[str]]:
    """What is logged with a stack trace meanwhile, in this process, by any thread."""
    found: list[str] = []

    class Watching(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.exc_info:
                found.append(logging.Formatter().format(record))

    handler = Watching()
    logging.getLogger().addHandler(handler)
    try:
        yield found
    finally:
        logging.getLogger().removeHandler(handler)
