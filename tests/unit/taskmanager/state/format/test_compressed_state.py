"""State that would take more memory than its file: compressed files, which Lockgate never writes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from lockgate_taskmanager.state.format import state_file
from lockgate_taskmanager.state.format.state_file import About
from lockgate_taskmanager.task.program import StateUnreadable

COLUMNS = pa.schema([("k", pa.int64()), ("__hash", pa.int64())])


def rows(places: np.ndarray) -> pa.RecordBatch:
    return pa.record_batch([places, places], schema=COLUMNS)


def test_a_compressed_state_file_is_refused() -> None:
    written = state_file.write(np.arange(1000), rows, About(COLUMNS, "signature", 8))
    plain = state_file.read(written, "f", signature="signature", max_parallelism=8, wanted=range(8))
    assert sum(batch.num_rows for batch in plain.batches) == 1000
    sink = pa.BufferOutputStream()
    source = pa.ipc.open_file(written)
    with pa.ipc.new_file(sink, source.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as file:
        for number in range(source.num_record_batches):
            file.write_batch(source.get_batch(number))
    with pytest.raises(StateUnreadable, match=r"the state file f cannot be read as keyed state: it is compressed"):
        state_file.read(sink.getvalue(), "f", signature="signature", max_parallelism=8, wanted=range(8))
