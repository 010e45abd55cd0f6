"""Python functions on their way to the task managers."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from lockgate_proto.messages import ForeachBatchSink, PythonTransform

from lockgate import Job, PipelineError

pytestmark = pytest.mark.spark


def test_a_function_is_pickled_with_its_closure() -> None:
    factor = 3
    job = Job("j")
    job.generate(1).transform(lambda df: df * factor).print()
    kind = job.graph().vertices[0].operators[1].kind
    assert isinstance(kind, PythonTransform)
    assert pickle.loads(kind.function)(2) == 6
    assert "test_pipeline_pickled.py:" in kind.description


def test_foreach_batch_gets_two_arguments() -> None:
    job = Job("j")
    job.generate(1).foreach_batch(lambda df, checkpoint_id: (df, checkpoint_id))
    kind = job.graph().vertices[0].operators[1].kind
    assert isinstance(kind, ForeachBatchSink)
    assert pickle.loads(kind.function)("df", 7) == ("df", 7)


def test_an_object_that_cannot_be_pickled_is_reported_with_the_reason() -> None:
    lock = threading.Lock()
    with pytest.raises(PipelineError, match=r"cannot send .*lambda.* to the task managers: .*lock"):
        Job("j").generate(1).transform(lambda df: (lock, df))


def test_a_module_beside_the_script_travels_too(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("def twice(x):\n    return x * 2\n")
    script = tmp_path / "pipeline.py"
    script.write_text(
        "import sys, helper\nfrom lockgate import Job\njob = Job('j')\n"
        "job.generate(1).transform(lambda df: helper.twice(df)).print()\n"
        "sys.stdout.buffer.write(job.graph().vertices[0].operators[1].kind.function)\n"
    )
    made = subprocess.run([sys.executable, str(script)], capture_output=True, check=True, cwd="/")
    assert "helper" not in sys.modules
    assert pickle.loads(made.stdout)(21) == 42


SETS_AND_CLASSES = """
from lockgate import Job

CITIES = {"oslo", "bergen", "tromso", "bodo", "narvik", "alta", "molde", "hamar"}

class Tools:
    limit = 3

    def of(self, df):
        return df.limit(self.limit)

class More(Tools):
    limit = 4

def kept(df):
    return More().of(Tools().of(df)) if CITIES else df

job = Job("sets", key="sets")
job.generate(1).transform(kept).transform(lambda df: Tools().of(df)).print()
job.submit()
"""


def test_the_same_file_is_the_same_graph_in_every_process(tmp_path: Path) -> None:
    """Sets are in another order there, and cloudpickle numbers classes at random."""
    (tmp_path / "sets.py").write_text(SETS_AND_CLASSES)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONHASHSEED"}
    command = [sys.executable, "-m", "lockgate", "submit", str(tmp_path / "sets.py"), "--dry-run"]
    printed = [
        subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout for _ in range(2)
    ]
    assert "function" in printed[0]
    assert printed[0] == printed[1]


def test_a_class_that_was_given_another_name_can_still_be_called() -> None:
    class Adder:
        step = 2

        def __call__(self, df: int) -> int:
            return df + self.step

    job = Job("j")
    job.generate(1).transform(lambda df: Adder()(df)).transform(lambda df: Adder()(df) + 1).print()
    functions = [
        operator.kind.function
        for operator in job.graph().vertices[0].operators
        if isinstance(operator.kind, PythonTransform)
    ]
    assert [pickle.loads(function)(1) for function in functions] == [3, 4]
