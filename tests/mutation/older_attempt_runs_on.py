"""A newer attempt is started beside the one that it replaces, and that runs on."""

from __future__ import annotations

from lockgate_taskmanager.runtime.deployments import Deployments

from tests.mutation.rewrite import rewrite

rewrite(Deployments, "_admit", "deployed.cancel(event_id)", "pass")
