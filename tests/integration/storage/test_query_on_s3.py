"""Single keys are read from snapshots on a real S3 server."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from lockgate_coordinator.runtime.metadata_files import MetadataFiles, Run
from lockgate_proto import messages as m
from lockgate_taskmanager.state.backend import make_backend
from lockgate_taskmanager.state.factory import StoreFactory
from lockgate_taskmanager.state.query.opened import OpenedFiles
from lockgate_taskmanager.state.query.snapshot_reader import SnapshotReader
from lockgate_taskmanager.state.query.spark_hash import hash_of
from lockgate_taskmanager.state.scratch import ScratchFolder
from lockgate_taskmanager.state.spec import StoreSpec
from lockgate_taskmanager.task.program import SnapshotOrder

from tests.s3_server import S3Server

pytestmark = [pytest.mark.integration, pytest.mark.rotating]

GROUPS = 8
COUNTS = m.KeyedAggregate(("word",), (m.Aggregate("n", m.AggregateFunction.COUNT),))
RUN = Run("job", "run")


@pytest.mark.parametrize("kind", [m.FilesystemBackend, m.RocksdbBackend])
def test_a_key_is_read_from_s3_until_its_checkpoint_is_deleted(s3: S3Server, tmp_path: Path, kind: type) -> None:
    if kind is m.RocksdbBackend:
        pytest.importorskip("rocksdict")
    choice, files = m.StateBackend(kind()), MetadataFiles(s3.uri("query"), "c", "secret")
    words = pa.array([f"word {number}" for number in range(100)])
    columns = {"word": words, "__hash": pa.array([hash_of([word]) for word in words])}
    partial = pa.table(columns | {"__rows": pa.array([3] * len(words))})
    stores = StoreFactory(choice, ScratchFolder(tmp_path, "state-"))
    store = stores.fresh(StoreSpec("op", COUNTS, GROUPS, range(GROUPS)), partial.schema)
    store.merge(partial)
    writer = make_backend(choice, files.run_directory(RUN), "a1-v-0").writer(1)
    state = store.snapshot(SnapshotOrder()).persist(1, writer)
    shape, part = m.VertexShape("v", 1, GROUPS, ("op",)), m.SubtaskState("v", 0, (state,))
    kept = m.CheckpointKind.CHECKPOINT
    metadata = m.CheckpointMetadata(1, "job", "run", 1, kept, vertices=(shape,), subtasks=(part,))
    stored = files.write(RUN, metadata, files.content(metadata))
    wanted = (m.OperatorKeys("op", ('["word 42"]', '["none"]')),)
    query = m.StateQuery(1, stored.pointer, stored.checksum, wanted)
    reader = SnapshotReader(OpenedFiles(ScratchFolder(tmp_path, "query-")))
    answer = reader.answer(query)
    assert answer.outcome is m.QueryOutcome.ANSWERED, answer.problem
    assert [value.value for value in answer.values] == ['{"values": {"n": 3}}', ""]
    files.delete_run(RUN)
    assert reader.answer(query) == answer, "what was opened is still there"
    reader.close()
    late = SnapshotReader(OpenedFiles(ScratchFolder(tmp_path, "query-"))).answer(query)
    assert late.outcome is m.QueryOutcome.CHECKPOINT_GONE
    assert s3.address not in late.problem
    store.close()
