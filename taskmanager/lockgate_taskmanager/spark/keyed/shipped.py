"""A function for Spark's Python workers that each worker unpickles once, and not in each task.

Spark sends a function with every task. That of a process function brings the modules that it needs, and unpickling them
takes as long as a micro-batch of some hundred records.
"""

from __future__ import annotations

import gc
import pickle
import sys
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from importlib import import_module
from types import ModuleType
from typing import Any

Function = Callable[[Any], Any]
MOST = 32  # of the operators whose tasks ran last; others are unpickled again
LARGEST = 1 << 20  # bytes of a pickle; a larger one has an author's data, which takes longer to unpickle than our code
HELD = "_lockgate_shipped"  # among the modules of a worker, where later tasks find them


def shipped(pickled: bytes) -> Function:
    """A function that calls the pickled one, which has to keep nothing between its calls."""
    name = sha256(pickled).digest()
    return lambda argument: _unpickled(name, pickled)(argument)


def _unpickled(name: bytes, pickled: bytes) -> Function:
    functions = _functions()
    function = functions.pop(name, None) or pickle.loads(pickled)
    if len(pickled) <= LARGEST:
        if len(functions) == MOST:
            del functions[next(iter(functions))]
        functions[name] = function  # behind all others
    return function


def _functions() -> dict[bytes, Function]:
    """Those of this worker, in the order of their last use."""
    module = sys.modules.get(HELD)
    if module is None:
        _set_imports_apart()
        module = sys.modules[HELD] = ModuleType(HELD)
        module.functions = {}  # type: ignore[attr-defined]
    functions: dict[bytes, Function] = module.functions
    return functions


def _set_imports_apart() -> None:
    """Spark's worker collects garbage after each task, among all objects of the modules that it has imported: 15 to
    40 ms. These are set apart once, with pandas, which it imports after its first task; once, because garbage among
    what is set apart is never found.
    """
    with suppress(ImportError):
        import_module("pandas")
    gc.freeze()
