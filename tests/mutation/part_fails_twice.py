"""What fails while a part waits for its restart is another failure of the job."""

from __future__ import annotations

from lockgate_coordinator.job.restart import Restarts

from tests.mutation.rewrite import rewrite

rewrite(Restarts, "failed", "before is not None and failed.cause not in _ENDS_JOB", "False")
