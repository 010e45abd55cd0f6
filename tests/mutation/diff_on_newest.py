"""A difference is made from the newest form that is known, and not from that in the checkpoint that is built on."""

from __future__ import annotations

from lockgate_taskmanager.state.rows.before_images import Before, Layers

_before = Layers.before


def _newest(self: Layers) -> Before:
    self._layers = tuple(reversed(self._layers))
    return _before(self)


Layers.before = _newest  # type: ignore[method-assign]
