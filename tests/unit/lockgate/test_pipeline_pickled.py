"""Python functions on their way to the task managers."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from lockgate_proto.messages import ForeachBatchSink, PythonTransform

from lockgate import Job, PipelineError


def test_a_function_travels_with_what_it_closes_over() -> None:
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


def test_what_cannot_travel_is_told_with_the_reason() -> None:
    lock = threading.Lock()
    with pytest.raises(PipelineError, match=r"cannot send .*lambda.* to the task managers: .*lock"):
        Job("j").generate(1).map(lambda df: (lock, df))


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
