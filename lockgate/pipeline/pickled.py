"""Python functions of a pipeline, as bytes that a task manager can call."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from lockgate.pipeline.errors import PipelineError

# on every task manager, even when the author's file is in the same folder as our sources
_INSTALLED = re.compile(r"lockgate(_(proto|common|ha|coordinator|taskmanager|devtools|web))?(\.|$)")


def pickled(
    method: str,
    function: Any,
    arguments: tuple[str, ...],
    optional: tuple[str, ...] = (),
    *,
    place: str = "inside the function",
    may_yield: bool = False,
) -> bytes:
    """Pickles `function` by value, with the author's own modules that it uses.

    arguments: those it will be called with, for messages; optional: passed as well if it has a parameter of that name;
    place: where what cannot be pickled belongs; may_yield: it may be a generator function. Raises PipelineError when it
    cannot be called like that, or holds an object that cannot be pickled.
    """
    _check_callable(method, function, arguments, optional, may_yield)
    return _dumped(method, function, place)


def pickled_connector(method: str, value: Any, kind: type[Any], extra: tuple[ModuleType, ...] = ()) -> bytes:
    """The same for an instance of a class derived from `kind`."""
    if isinstance(value, type) and issubclass(value, kind):
        raise PipelineError(f"{method}() takes an object, not the class: {method}({value.__name__}(...))")
    if not isinstance(value, kind):
        raise PipelineError(f"{method}() takes an object of a class that derives from {kind.__name__}, not {value!r}")
    return _dumped(method, value, "in its open()", extra)


def pickled_process(method: str, value: Any, kind: type[Any]) -> bytes:
    """The same for a function that runs on Spark's executors, where `kind` may not be installed: it is pickled, too."""
    return pickled_connector(method, value, kind, (sys.modules[kind.__module__],))


def _dumped(method: str, value: Any, place: str, extra: tuple[ModuleType, ...] = ()) -> bytes:
    cloudpickle: Any = import_module("pyspark.cloudpickle")  # imported here, because pyspark is slow to import
    try:
        with _by_value(cloudpickle, extra):
            data = _same_every_time(cloudpickle.dumps, value)
    except Exception as error:
        raise PipelineError(
            f"{method}() cannot send {describe(value)} to the task managers: {error}; it may use only what can be "
            f"pickled (open files, connections and the SparkSession cannot: make them {place})"
        ) from error
    return data


def _same_every_time(dumps: Callable[[Any], bytes], value: Any) -> bytes:
    """Pickles `value` so that the same program gives the same bytes in another process.

    cloudpickle gives each of the author's classes a random id, by which a task manager recognizes it; here the id is
    derived from the pickled content. Sets are in the order of their hashes, which `lockgate submit` fixes.
    """
    tracker: Any = import_module("pyspark.cloudpickle.cloudpickle")
    before = set(tracker._DYNAMIC_CLASS_TRACKER_BY_CLASS)
    data = dumps(value)
    known = {key: name.encode() for key, name in tracker._DYNAMIC_CLASS_TRACKER_BY_CLASS.items() if key not in before}
    fresh = sorted((cls for cls in known if known[cls] in data), key=lambda cls: data.index(known[cls]))
    if not fresh:
        return data
    plain = data
    for cls in fresh:
        plain = plain.replace(known[cls], bytes(len(known[cls])))
    for number, cls in enumerate(fresh):
        name = sha256(plain + b"%d" % number).hexdigest()[: len(known[cls])]
        data = data.replace(known[cls], name.encode())
        tracker._DYNAMIC_CLASS_TRACKER_BY_CLASS[cls] = name
        tracker._DYNAMIC_CLASS_TRACKER_BY_ID[name] = cls
    return data


def describe(function: Any) -> str:
    """A function's name and where it is defined, in readable form."""
    name = getattr(function, "__qualname__", None) or type(function).__name__
    code = getattr(function, "__code__", None)
    return f"{name} ({Path(code.co_filename).name}:{code.co_firstlineno})" if code else str(name)


def _check_callable(
    method: str, function: Any, arguments: tuple[str, ...], optional: tuple[str, ...], may_yield: bool
) -> None:
    wanted = ", ".join(arguments)
    if not callable(function):
        raise PipelineError(f"{method}() takes a function of ({wanted}), not {type(function).__name__}")
    codes = (function, type(function).__call__)  # a functools.partial is looked into, an object's class is not
    if any(
        inspect.iscoroutinefunction(code) or (inspect.isgeneratorfunction(code) and not may_yield) for code in codes
    ):
        other = "async" if may_yield else "async or yield"
        raise PipelineError(f"{method}() takes a plain function of ({wanted}), without {other}")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*arguments, **{name: name for name in optional if name in signature.parameters})
    except TypeError as error:
        raise PipelineError(
            f"{method}() calls its function with ({wanted}), but {describe(function)} takes {signature}"
        ) from error


@contextmanager
def _by_value(cloudpickle: Any, extra: tuple[ModuleType, ...]) -> Iterator[None]:
    """Modules beside the author's file are pickled with the function: they are not installed on the task managers."""
    already = cloudpickle.list_registry_pickle_by_value()
    modules = [module for module in (*_own_modules(), *extra) if module.__name__ not in already]
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
        if name == "__main__" or not origin or module.__name__ != name or _INSTALLED.match(name):
            continue
        path = Path(origin).resolve()
        if folder in path.parents and not {"site-packages", "dist-packages"} & set(path.parts):
            yield module
