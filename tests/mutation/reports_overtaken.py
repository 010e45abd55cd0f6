"""What is no report goes to the leader before the reports that wait for each other."""

from __future__ import annotations

from lockgate_taskmanager.runtime.control_client import ControlClient

from tests.mutation.rewrite import rewrite

rewrite(
    ControlClient,
    "send",
    "self._send_batch()\n            self._send(body, self._session.send(body))",
    "self._send(body, self._session.send(body))",
)
