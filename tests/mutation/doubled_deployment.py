"""A deployment that arrives again is carried out again."""

from __future__ import annotations

from lockgate_taskmanager.runtime.deployments import Deployments

from tests.mutation.rewrite import rewrite

rewrite(Deployments, "_admit", "if attempt.attempt <= newest:", "if attempt.attempt < newest:")
