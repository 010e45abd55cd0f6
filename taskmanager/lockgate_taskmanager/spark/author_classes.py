"""The classes of one loaded object of an author: of its own, and the same for the state that is restored into it.

    client:  class Score --id 5f3a--> bytes of the function, bytes of its state
    here:    subtask 0: its own Score <-- its function, its state        subtask 1: another Score <-- ...

cloudpickle shares a class by its id within a process, and sets all its attributes anew whenever it is loaded again.
What `open` has stored in a class attribute or a module global would then be lost as soon as another subtask, or a
warm-up, loads the same function. Modules that are installed here are shared, as in any Python process.
"""

from __future__ import annotations

import io
import pickle
from importlib import import_module
from typing import Any

_CLOUDPICKLE = "pyspark.cloudpickle"
_TYPES = frozenset({"_make_skeleton_class", "_make_skeleton_enum", "_make_typevar"})
_SET_STATE = "_class_setstate"


class AuthorClasses:
    """Those that came with one object. Used from one thread at a time."""

    def __init__(self) -> None:
        self._by_id: dict[str, Any] = {}
        self._kept: set[int] = set()  # id() of each of these
        self._empty: set[int] = set()  # of those that have no attributes yet

    def loads(self, data: bytes) -> Any:
        """An object pickled by cloudpickle. A class that came before is used as it is now.

        Raises what unpickling raises.
        """
        return _Unpickler(data, self).load()

    def made(self, make: Any, arguments: tuple[Any, ...], at: int) -> Any:
        """The class of an id. make: makes it, if it is new; at: the place of the id in its arguments."""
        tracker_id = arguments[at]
        found = self._by_id.get(tracker_id)
        if found is None:
            # without an id, cloudpickle does not look for a class of another object
            found = make(*arguments[:at], None, *arguments[at + 1 :])
            if tracker_id is not None:
                self._by_id[tracker_id] = found
                self._kept.add(id(found))
                self._empty.add(id(found))
                _name_when_pickled(found, tracker_id)
        return found

    def completed(self, set_state: Any, found: Any, state: Any) -> Any:
        """The class with its attributes: those that came first, and what the author's code has made of them since."""
        if id(found) in self._kept and id(found) not in self._empty:
            return found
        self._empty.discard(id(found))
        return set_state(found, state)


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes, classes: AuthorClasses) -> None:
        super().__init__(io.BytesIO(data))
        self._classes = classes

    def find_class(self, module: str, name: str) -> Any:
        found = super().find_class(module, name)
        if not module.startswith(_CLOUDPICKLE):
            return found
        if name in _TYPES:
            at = 4 if name == "_make_skeleton_class" else 5
            return lambda *arguments: self._classes.made(found, arguments, at)
        if name == _SET_STATE:
            return lambda *arguments: self._classes.completed(found, *arguments)
        return found


def _name_when_pickled(found: Any, tracker_id: str) -> None:
    """State with objects of the class refers to it by this id."""
    tracker: Any = import_module(f"{_CLOUDPICKLE}.cloudpickle")
    with tracker._DYNAMIC_CLASS_TRACKER_LOCK:
        tracker._DYNAMIC_CLASS_TRACKER_BY_CLASS[found] = tracker_id
