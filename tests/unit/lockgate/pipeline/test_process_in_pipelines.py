"""Process functions and deduplication in the builder: what graph they become, how they travel, what is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lockgate_proto import messages as m
from lockgate_taskmanager.spark.keyed import handles, process, runner
from pyspark import cloudpickle

from lockgate import Job, ListState, MapState, PipelineError, ProcessFunction, ValueState
from lockgate.pipeline.processing import State, Timers

pytestmark = pytest.mark.spark


class Visits(ProcessFunction):
    last = ValueState("TIMESTAMP")
    pages = MapState("STRING", "BIGINT", ttl="1 hour")
    names = ListState("STRING", ttl=500)

    def process(self, context: Any, row: dict[str, Any]) -> Any:  # noqa: ARG002
        self.pages[row["page"]] = self.pages.get(row["page"], 0) + 1
        return {"page": row["page"], "n": self.pages[row["page"]]}


def records(job: Job | None = None) -> Any:
    return (job or Job("j")).read_json("/clicks", schema="user STRING, page STRING").key_by("user")


def test_a_process_function_becomes_an_operator_behind_a_hash_edge() -> None:
    job = Job("j", parallelism=2)
    records(job).process(Visits(), schema="page STRING, n BIGINT").print()
    graph = job.graph()
    kind = graph.vertices[1].operators[0].kind
    assert isinstance(kind, m.KeyedProcess)
    assert kind.keys == ("user",)
    assert kind.schema == "page STRING, n BIGINT"
    assert "Visits" in kind.description
    value, listed, mapped = m.StateShape.VALUE_STATE, m.StateShape.LIST_STATE, m.StateShape.MAP_STATE
    assert kind.states == (
        m.DeclaredState("last", value, "TIMESTAMP"),
        m.DeclaredState("names", listed, "STRING", "", 500),
        m.DeclaredState("pages", mapped, "BIGINT", "STRING", 3_600_000),
    )
    assert graph.edges[0] == m.Edge("read_json-1", "process-1", m.Partitioning.HASH, ("user",))


def test_a_deduplication_needs_no_code() -> None:
    job = Job("j")
    records(job).deduplicate(ttl="1 minute").key_by("page").deduplicate().print()
    kinds = [vertex.operators[0].kind for vertex in job.graph().vertices[1:]]
    assert kinds == [m.Deduplicate(("user",), 60_000), m.Deduplicate(("page",), 0)]


class Other(State):
    pass


def declaring(state: Any) -> ProcessFunction:
    return type("Made", (ProcessFunction,), {"mine": state})()


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (lambda item: item.process(Visits, schema="n INT"), "takes an object, not the class"),
        (lambda item: item.process(len, schema="n INT"), "derives from ProcessFunction"),
        (lambda item: item.process(Visits(), schema=" "), "needs schema= as text"),
        (
            lambda item: item.process(declaring(ValueState("")), schema="n INT"),
            "needs the type of state 'mine' as text",
        ),
        (
            lambda item: item.process(declaring(MapState(1, "INT")), schema="n INT"),
            "the type of the keys of state 'mine'",
        ),  # type: ignore[arg-type]
        (
            lambda item: item.process(declaring(ValueState("INT", ttl="soon")), schema="n INT"),
            "the ttl of state 'mine'",
        ),
        (lambda item: item.process(declaring(Other("INT")), schema="n INT"), "use ValueState, ListState or MapState"),
        (lambda stream: stream.deduplicate(ttl=0), "ttl must be 1 to"),
        (lambda stream: stream.select("user").process(Visits(), schema="n INT"), r"process\(\) needs a key"),
        (lambda stream: stream.select("user").deduplicate(), r"deduplicate\(\) needs a key"),
    ],
)
def test_mistakes_are_reported_with_the_authors_line(mistake: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        mistake(records())


def test_state_says_where_it_can_be_used() -> None:
    with pytest.raises(RuntimeError, match="inside process"):
        Visits().pages["a"] = 1


@pytest.mark.parametrize(
    ("declared", "handle"),
    [
        (ValueState, handles.ValueHandle),
        (ListState, handles.ListHandle),
        (MapState, handles.MapHandle),
        (Timers, handles.TimerHandle),
    ],
)
def test_declared_states_have_the_methods_of_their_handles(declared: type[Any], handle: type[Any]) -> None:
    special = {"__iter__", "__len__", "__getitem__", "__setitem__", "__delitem__", "__contains__"}
    inherited = set(dir(object)) | {"get_type"}
    wanted = {name for name in dir(declared) if not name.startswith("_") or name in special} - inherited
    wanted -= {name for name in wanted if not callable(getattr(declared, name))}
    assert wanted <= set(dir(handle))


@pytest.fixture
def by_value() -> Iterator[None]:
    """As if the test were the author's script."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


@pytest.mark.usefixtures("by_value")
def test_a_function_runs_where_nothing_of_ours_is_installed(tmp_path: Path) -> None:
    job = Job("j")
    records(job).process(Visits(), schema="page STRING, n BIGINT").print()
    kind = job.graph().vertices[1].operators[0].kind
    assert isinstance(kind, m.KeyedProcess)
    state = runner.Declared("pages", runner.MAP, pa.int64(), pa.string(), 0)
    result = pa.schema([("page", pa.string()), ("n", pa.int64())])
    call = runner.calling(kind.function, (state,), ("user",), ("user", "page"), result)
    assert process.ProcessPlan, "importing it lets the runner travel"
    (tmp_path / "call").write_bytes(cloudpickle.dumps(call))
    (tmp_path / "elsewhere.py").write_text(
        "import pickle, sys\nimport pyarrow as pa\n"
        "call = pickle.load(open('call', 'rb'))\n"
        "names = ['user', '__payload', '__lockgate_count', '__watermark', '__now']\n"
        "visits = pa.record_batch([['u'], [None], [2], [0], [0]], names)\n"
        "records = pa.record_batch({'user': ['u', 'u'], 'page': ['a', 'a']})\n"
        "print(next(call(iter([visits, records]))).to_pylist()[-1]['n'])\n"
        "assert not {'lockgate', 'taskmanager', 'lockgate_proto'} & set(sys.modules)\n"
    )
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    packages = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    code = f"import sys; sys.path[:0] = {packages!r}; exec(open('elsewhere.py').read())"
    made = subprocess.run(
        [sys.executable, "-S", "-c", code], cwd=tmp_path, env=clean, capture_output=True, text=True, check=False
    )
    assert made.stdout == "2\n", made.stderr
