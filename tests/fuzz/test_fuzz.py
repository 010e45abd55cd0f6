"""Damaged bytes for every reader and every rpc: each is taken, or refused in a sentence; see `tests.fuzz.target`.

A finding prints the command that repeats it. `make fuzz` tries more.
"""

from __future__ import annotations

import json
import logging
import secrets
from collections import Counter
from pathlib import Path

import pytest

from tests.fuzz.catalogue import open_targets
from tests.fuzz.mutator import LARGEST
from tests.fuzz.rpcs import services
from tests.fuzz.target import Finding, Target, case, each_of, run, share
from tests.run_notes import RUN_NOTE

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]  # what reads state needs packages that come with Spark

INPUTS = 20_000  # with a third of them some targets do not say all that is demanded below
IMPLEMENTED_NOWHERE = "/grpc.health.v1.Health/List"


@pytest.mark.integration
def test_every_reader_and_every_rpc_accepts_or_refuses_its_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record_property: pytest.RecordProperty
) -> None:
    seed = secrets.randbits(32)
    record_property(RUN_NOTE, f"python -m tests.fuzz --seed {seed}")
    monkeypatch.chdir(tmp_path)
    counts: dict[str, Counter[str]] = {}
    with open_targets(tmp_path) as targets:
        assert len({target.name for target in targets}) == len(targets)
        each = each_of(targets, INPUTS)
        for target in targets:
            counts[target.name] = run(target, seed, range(share(target, each)))
    assert sum(counter.total() for counter in counts.values()) >= INPUTS
    for name, said in counts.items():
        if name.startswith("rpc "):
            assert said["granted"] or IMPLEMENTED_NOWHERE in name, f"{name} was never granted: {said}"
        elif name.startswith("web "):
            assert said["HTTP 200"] or (said["HTTP 401"] and name == "web metrics for a stranger"), f"{name}: {said}"
        elif not name.startswith(("port ", "takeover")):
            assert said["taken"], f"{name} takes nothing"
            assert said["refused"] or name.startswith("zookeeper"), f"{name} refuses nothing"
    called = {name.rpartition(" ")[2] for name in counts if name.startswith("rpc ")}
    assert called == {f"/{name}/{rpc.name}" for name, service in services().items() for rpc in service.methods}


def _fragile(data: bytes) -> None:
    """A reader with the mistakes that the oracle is there for."""
    if b"\xff" in data:
        raise KeyError("what is behind 0xff")
    if b"[[[[[" in data:
        json.loads(b"[" * 100_000)
    if not data:
        try:
            raise RuntimeError
        except RuntimeError:
            logging.getLogger("tests.fuzz").exception("nothing there")
    if len(data) > 1_000:
        raise ValueError("x" * len(data))
    if len(data) % 7 == 3:
        raise ValueError("")


def test_the_oracle_notices_every_kind_of_mistake_and_names_the_case() -> None:
    target = Target("fragile", _fragile, [b'{"a": [1, 2, 3]}'], (ValueError,))
    found: dict[str, int] = {}
    at = 0
    while len(found) < 5 and at < 20_000:
        with pytest.raises(Finding) as caught:
            run(target, 7, range(at, 20_000))
        number = caught.value.number
        found.setdefault(str(caught.value).partition(" of ")[0][:40], number)
        assert f"--target 'fragile' --seed 7 --case {number}" in str(caught.value)
        at = number + 1
    assert len(found) >= 5, found
    for number in found.values():
        with pytest.raises(Finding):
            run(target, 7, range(number, number + 1))


def test_the_same_seed_gives_the_same_bytes() -> None:
    target = Target("same", _fragile, [b'{"a": [1, 2, 3]}', b"other bytes"], (ValueError,))
    cases = [case(target, 3, number) for number in range(2_000)]
    assert cases == [case(target, 3, number) for number in range(2_000)]
    assert cases != [case(target, 4, number) for number in range(2_000)]
    assert len(set(cases)) > 1_000
    assert max(map(len, cases)) <= LARGEST
