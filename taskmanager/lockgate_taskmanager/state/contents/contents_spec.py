"""The identity of the records that the windows of an operator hold."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace

import pyarrow as pa
from lockgate_proto.messages import Window

from lockgate_taskmanager.state.join.join_spec import SpanSpec
from lockgate_taskmanager.state.windows.shape import WindowShape, shape_of


@dataclass(frozen=True, slots=True)
class ContentsSpec(SpanSpec):
    """Whose records they are. keys: names of their key columns; key_groups: those of the subtask."""

    operator_id: str
    keys: tuple[str, ...]
    window: Window
    max_parallelism: int
    key_groups: range

    @property
    def shape(self) -> WindowShape:
        """Of the windows."""
        return shape_of(self.window)

    @property
    def span_ms(self) -> int:
        """A pane: the windows that are over have all records of some spans, and none of the others."""
        return self.shape.pane_ms

    @property
    def offset_ms(self) -> int:
        return self.shape.offset_ms

    @property
    def signature(self) -> str:
        kind = self.window.kind
        assert kind is not None
        window = {"kind": type(kind).__name__, **asdict(kind), "event_time": self.window.event_time}
        return json.dumps({"contents": [key.casefold() for key in self.keys], "window": window})

    def within(self, schema: pa.Schema) -> ContentsSpec:
        """The spec with the key names as the records spell them: Spark ignores case."""
        names = {name.casefold(): name for name in schema.names}
        return replace(self, keys=tuple(names[key.casefold()] for key in self.keys))
