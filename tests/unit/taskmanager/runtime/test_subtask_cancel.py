"""A subtask that is cancelled ends, also while it is being made of the author's code."""

from __future__ import annotations

import threading
from concurrent import futures
from pathlib import Path
from typing import Any

import pytest
from lockgate_common.story_log import Outside
from lockgate_proto.messages import AttemptId, JobGraph, Operator, PythonTransform, SubtaskId, Vertex
from lockgate_taskmanager.runtime.ending import end_in_background
from lockgate_taskmanager.runtime.output_set import OutputSet
from lockgate_taskmanager.runtime.subtask_task import SubtaskTask
from lockgate_taskmanager.spark import chain, user_code
from lockgate_taskmanager.task.program import ProgramContext
from pyspark import cloudpickle

from tests.unit.taskmanager.runtime.stories_of import story_of

pytestmark = pytest.mark.spark

WAIT_S = 60.0
_imported = threading.Event()


def _endless() -> None:
    _imported.set()
    while True:
        pass


class NeverImported:
    """Pickled as the call of a function, as a module is whose import never ends."""

    def __reduce__(self) -> Any:
        return _endless, ()


class Factory:
    def build(self, context: ProgramContext) -> Any:
        return chain.transform(context.graph.vertices[0].operators[0])

    def interrupt_user_code(self, thread: int) -> None:
        user_code.end(thread)


def test_an_import_without_end_is_ended(tmp_path: Path) -> None:
    operator = Operator("o", "o", PythonTransform(cloudpickle.dumps(NeverImported())))
    context = ProgramContext(
        SubtaskId(AttemptId("job", "run", 1), "v", 0),
        JobGraph("job", (Vertex("v", operators=(operator,)),)),
        str(tmp_path),
    )
    ended, factory = threading.Event(), Factory()
    with futures.ThreadPoolExecutor(1) as uploads:
        task = SubtaskTask(context, [], factory, uploads, lambda _: None, lambda _: ended.set(), story_of(context))  # type: ignore[arg-type]
        task.connect(OutputSet({}, {}))
        task.start()
        assert _imported.wait(WAIT_S)
        task.cancel(Outside.PROCESS)
        end_in_background((task,), "test")
        assert ended.wait(WAIT_S)
