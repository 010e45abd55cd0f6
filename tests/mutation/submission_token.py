"""The record of a submission carries no token of the leader that wrote it."""

from __future__ import annotations

from lockgate_coordinator.runtime.submissions import Submissions

from tests.mutation.rewrite import rewrite

rewrite(Submissions, "submit", "token=self.term.token", "token=0")
