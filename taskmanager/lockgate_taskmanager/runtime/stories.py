"""Stories: what this process remembers of the jobs that run or ran here, for `lockgate job KEY --story`."""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from collections.abc import Sequence

from lockgate_common.clock import unix_us
from lockgate_common.story_log import StoryLog
from lockgate_proto.messages import AttemptId, StoryAnswer, StoryRequest, SubtaskId

from lockgate_taskmanager.task import effects as do
from lockgate_taskmanager.task import events as on
from lockgate_taskmanager.task.machine import LifeCycle
from lockgate_taskmanager.task.story_text import cause_of, effects_of, event_text

KEPT_RUNS = 32
KEPT_UPLOADS = 100


class Stories:
    """One log per run of a job, whichever attempt; those not used for longest are forgotten. Thread safe."""

    def __init__(self, task_manager_id: str, incarnation: str) -> None:
        """incarnation: of this process, so that its ids are not those of an earlier one."""
        self._id = task_manager_id
        self._prefix = f"{task_manager_id}.{incarnation[:4]}"
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._logs: OrderedDict[tuple[str, str], StoryLog] = OrderedDict()

    def add(self, attempt: AttemptId, event: str, cause_id: str, effects: Sequence[str] = ()) -> str:
        """Something that concerns the attempt as a whole. Returns the event's id."""
        return self.of(attempt).add(event, cause_id, effects, unix_us=unix_us(), attempt=attempt.attempt)

    def of(self, attempt: AttemptId) -> StoryLog:
        """The log of the attempt's run."""
        run = (attempt.job_key, attempt.run_id)
        with self._lock:
            log = self._logs.setdefault(run, StoryLog(self._id, self._prefix, self._numbers))
            self._logs.move_to_end(run)
            while len(self._logs) > KEPT_RUNS:
                self._logs.popitem(last=False)
            return log

    def answer(self, request: StoryRequest) -> StoryAnswer:
        """The answer to the leader; empty for a job that is not known here."""
        with self._lock:
            log = self._logs.get((request.job_key, request.run_id))
        lines = log.lines(request.lines) if log is not None else ()
        return StoryAnswer(request.request, lines, log is not None and log.is_cut(len(lines)))


class SubtaskStory:
    """The events of one subtask. One caller at a time."""

    def __init__(self, log: StoryLog, subtask: SubtaskId, deployed_by: str) -> None:
        """deployed_by: id of the event that started it."""
        self.last_id = deployed_by  # of its events
        self._log = log
        self._place = f"{subtask.vertex_id}[{subtask.subtask}]"
        self._attempt = subtask.attempt.attempt if subtask.attempt is not None else 0
        self._uploads: dict[int, str] = {}  # by checkpoint id: the event that started it

    def handled(
        self, event: on.Event, cause_id: str, effects: Sequence[do.Effect], before: LifeCycle, after: LifeCycle
    ) -> str:
        """The event's id, the cause of its effects. cause_id: empty where the event itself says where it comes from.

        An element from which nothing follows gets none: this is called for every batch.
        """
        if not effects and isinstance(event, on.ElementProcessed):
            return self.last_id
        if isinstance(event, on.UploadDone | on.UploadFailed):
            cause_id = self._uploads.pop(event.checkpoint_id, "")
        change = f"{before.name} -> {after.name}" if after is not before else ""
        self.last_id = self._log.add(
            event_text(event),
            cause_id or cause_of(event),
            effects_of(effects),
            unix_us=unix_us(),
            change=change,
            place=self._place,
            attempt=self._attempt,
        )
        for effect in effects:
            if isinstance(effect, do.StartUpload):
                self._uploads[effect.checkpoint_id] = self.last_id
                if len(self._uploads) > KEPT_UPLOADS:
                    del self._uploads[next(iter(self._uploads))]
        return self.last_id
