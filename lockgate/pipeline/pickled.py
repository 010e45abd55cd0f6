"""Python functions of a pipeline, as bytes that a task manager can call."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from lockgate.pipeline.errors import PipelineError


def pickled(method: str, function: Any, arguments: tuple[str, ...]) -> bytes:
    """Pickles `function` by value, with the author's own modules that it uses.

    arguments: what it will be called with, for messages. Raises PipelineError when it cannot be called like that, or
    holds something that cannot travel.
    """
    _check_callable(method, function, arguments)
    cloudpickle: Any = import_module("pyspark.cloudpickle")  # here, because pyspark is slow to import

    try:
        with _by_value(cloudpickle):
            data: bytes = cloudpickle.dumps(function)
    except Exception as error:
        raise PipelineError(
            f"{method}() cannot send {describe(function)} to the task managers: {error}; it may use only what can be "
            "pickled (open files, connections and the SparkSession cannot: make them inside the function)"
        ) from error
    return data


def describe(function: Any) -> str:
    """A function's name and where it is defined, for people."""
    name = getattr(function, "__qualname__", None) or type(function).__name__
    code = getattr(function, "__code__", None)
    return f"{name} ({Path(code.co_filename).name}:{code.co_firstlineno})" if code else str(name)


def _check_callable(method: str, function: Any, arguments: tuple[str, ...]) -> None:
    wanted = ", ".join(arguments)
    if not callable(function):
        raise PipelineError(f"{method}() takes a function of ({wanted}), not {type(function).__name__}")
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise PipelineError(f"{method}() takes a plain function of ({wanted}), without async or yield")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*arguments)
    except TypeError as error:
        raise PipelineError(
            f"{method}() calls its function with ({wanted}), but {describe(function)} takes {signature}"
        ) from error


@contextmanager
def _by_value(cloudpickle: Any) -> Iterator[None]:
    """Modules beside the author's file travel with the function: they are not installed on the task managers."""
    already = cloudpickle.list_registry_pickle_by_value()
    modules = [module for module in _own_modules() if module.__name__ not in already]
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)


def _own_modules() -> Iterator[ModuleType]:
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    if not script:
        return
    folder = Path(script).resolve().parent
    for name, module in list(sys.modules.items()):
        origin = getattr(module, "__file__", None)
        if name == "__main__" or not origin or module.__name__ != name:
            continue
        path = Path(origin).resolve()
        if folder in path.parents and not {"site-packages", "dist-packages"} & set(path.parts):
            yield module
