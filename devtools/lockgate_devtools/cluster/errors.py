"""The error of the local cluster."""

from __future__ import annotations

from lockgate.errors import UserError


class ClusterError(UserError):
    """The cluster cannot start or continue. The message is one or more sentences for the user."""
