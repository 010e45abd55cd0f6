"""Schedules that no run before has tried. LOCKGATE_TEST_SIMULATION_SECONDS is their processor time."""

from __future__ import annotations

import argparse
import os
import random
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest

from tests.run_notes import RUN_NOTE
from tests.simulation.fresh import Found, search
from tests.simulation.kinds import FRESH, add_options, again, chosen, fresh_scenario
from tests.simulation.programs import CountProgram
from tests.simulation.simulation import simulate
from tests.simulation.world import Violation

pytestmark = [pytest.mark.timeout(1800), pytest.mark.first]

SECONDS = float(os.environ.get("LOCKGATE_TEST_SIMULATION_SECONDS", "5"))
SHOWN = 3


def test_fresh_schedules_lose_nothing_and_repeat_nothing(record_property: Callable[[str, object], None]) -> None:
    found = search(fresh_scenario, random.SystemRandom().randrange(2**31), SECONDS)
    record_property(RUN_NOTE, str(found))
    if found.failed:
        pytest.fail("\n\n".join((_commands(found), *list(found.failed.values())[:SHOWN])), pytrace=False)


def _commands(found: Found) -> str:
    return "\n".join(["repeat with:", *(again(fresh_scenario(seed), FRESH) for seed in found.failed)])


def test_a_failing_seed_prints_the_command_that_reproduces_it() -> None:
    freeze = CountProgram.freeze

    def forgetful(self: CountProgram, *arguments: Any) -> Any:
        changed = set(self.changed)
        found = freeze(self, *arguments)
        self.changed = changed
        return found

    parser = argparse.ArgumentParser()
    add_options(parser)
    with mock.patch.object(CountProgram, "freeze", forgetful):
        found = next(item for item in (search(fresh_scenario, seed, 0) for seed in range(20)) if item.failed)
        command = _commands(found).splitlines()[1]
        options = parser.parse_args(command.removeprefix("python -m tests.simulation").split())
        with pytest.raises(Violation) as raised:
            simulate(chosen(options, options.seed))
    what = {seed: story.partition("\n")[0] for seed, story in found.failed.items()}
    assert what == {options.seed: str(raised.value).partition("\n")[0]}
    assert str(found).endswith(f"seeds {options.seed} to {options.seed}: 1 failed")


def test_a_range_of_seeds_runs_on_every_processor() -> None:
    command = [sys.executable, "-m", "tests.simulation", "--seeds", "3:15"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stderr
    assert re.fullmatch(r"12 schedules, [\d,]+ steps in \d+ s \([\d,]+ a minute\): 0 failed\n", ended.stdout)
