"""What the local cluster raises."""

from __future__ import annotations

from lockgate.errors import UserError


class ClusterError(UserError):
    """The cluster cannot start or go on. The message is one or more sentences for the person who started it."""
