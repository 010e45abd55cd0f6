"""gRPC works without its event engine's threads: the choice is made before anything imports gRPC."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from lockgate_common.grpc_engine import VARIABLE, leave_engine

_CODE = """
import importlib, os, sys

class Finder:
    def find_spec(self, name, *_):
        if name == "grpc":
            print("grpc is imported with", os.environ.get({variable!r}))

sys.meta_path.insert(0, Finder())
importlib.import_module({module!r})
importlib.import_module("grpc")
"""


def test_what_the_user_has_chosen_stays() -> None:
    chosen: dict[str, str] = {VARIABLE: "event_engine_client"}
    leave_engine(chosen)
    assert chosen == {VARIABLE: "event_engine_client"}


@pytest.mark.parametrize(
    "module",
    [
        "lockgate.client",
        "lockgate.commands.health",
        "lockgate.commands.processes",
        "lockgate_devtools.cluster.child",
        "lockgate_coordinator.runtime.process",
    ],
)
def test_the_engine_is_left_before_grpc_is_imported(module: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    code = _CODE.format(variable=VARIABLE, module=module)
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[0] == "grpc is imported with -event_engine_client,-event_engine_listener"
