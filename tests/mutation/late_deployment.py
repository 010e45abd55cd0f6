"""A deployment that arrives behind the cancellation of its attempt is carried out."""

from __future__ import annotations

from lockgate_taskmanager.runtime.deployments import Deployments

from tests.mutation.rewrite import rewrite

rewrite(Deployments, "_cancel", "self._note_newest(run, attempt.attempt)", "pass")
