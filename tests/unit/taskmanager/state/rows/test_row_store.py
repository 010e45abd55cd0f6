"""What records may come in behind a restore of rows by key."""

from __future__ import annotations

import pyarrow as pa
import pytest
from lockgate_proto.messages import StateBackend
from lockgate_taskmanager.state.rows.row_database import RowTable
from lockgate_taskmanager.state.rows.row_heap import RowHeap
from lockgate_taskmanager.state.rows.row_store import RowSpec, adopted
from lockgate_taskmanager.task.program import UserError

SPEC = RowSpec("pages", "process", ("Id",), 128, range(128))
BEFORE = pa.schema([("Id", pa.int64()), ("word", pa.string())], {"lockgate.states": "{}"})


def test_other_columns_may_change_and_states_stay() -> None:
    now = pa.schema([("more", pa.int32()), ("Id", pa.int64())])
    assert adopted(SPEC, BEFORE, now) == now
    assert adopted(SPEC, BEFORE, now).metadata == BEFORE.metadata


def test_a_key_is_found_in_the_records_however_the_job_writes_it() -> None:
    spec = RowSpec("pages", "process", ("ID",), 128, range(128))
    assert RowTable(spec, BEFORE).keys == pa.schema([("Id", pa.int64())])
    assert RowHeap(spec, BEFORE, StateBackend()).record_schema == BEFORE


@pytest.mark.parametrize(
    ("field", "sentence"),
    [
        (("Id", pa.string()), "has the key 'Id' as int64, the records that come in have it as string"),
        (("id", pa.int64()), "has the key 'Id', the records that come in have id, word; keep the case of the name"),
    ],
)
def test_a_key_of_another_type_or_written_in_another_case_is_refused(
    field: tuple[str, pa.DataType], sentence: str
) -> None:
    with pytest.raises(UserError, match=sentence):
        adopted(SPEC, BEFORE, pa.schema([field, ("word", pa.string())]))
