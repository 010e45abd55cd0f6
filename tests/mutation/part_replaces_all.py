"""The deployment of a part ends what runs on beside it."""

from __future__ import annotations

from lockgate_taskmanager.runtime.deployments import Deployments

from tests.mutation.rewrite import rewrite

rewrite(Deployments, "_admit", "if known not in stay", "if True")
