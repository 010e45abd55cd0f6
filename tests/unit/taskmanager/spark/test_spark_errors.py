"""Which failures of Spark are the author's to mend, and which a restart may get over."""

from __future__ import annotations

import pytest
from lockgate_proto.messages import FailureCause
from pyspark.errors import PySparkException

from taskmanager.runtime.failures import cause_of
from taskmanager.spark.errors import EngineError, explained
from taskmanager.task.program import ProgramError, UserError

TRACE = "\n\tat org.apache.spark.scheduler.Task.run(Task.scala:147)\n"
STATE_BELOW = (
    TRACE + "Caused by: org.apache.spark.SparkArithmeticException: [DIVIDE_BY_ZERO] no. SQLSTATE: 22012" + TRACE
)


def stage_failure(kind: str, message: str, below: str = TRACE) -> PySparkException:
    """What Spark Connect raises when a task has failed."""
    return PySparkException(
        "Job aborted due to stage failure: Task 0 in stage 16.0 failed 1 times, most recent failure: Lost task 0.0 in"
        f" stage 16.0 (TID 16) (192.0.2.2 executor driver): {kind}: {message}{below}"
    )


def raised(error: PySparkException) -> ProgramError:
    with pytest.raises(ProgramError) as caught, explained("operator 'x'"):
        raise error
    return caught.value


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("SparkArithmeticException", "[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012\n== SQL ==\n1/0\n"),
        ("SparkNumberFormatException", "[CAST_INVALID_INPUT] The value 'x' cannot be cast. SQLSTATE: 22018"),
        ("SparkException", "[MALFORMED_RECORD_IN_PARSING] Malformed.\nParse Mode: FAILFAST. SQLSTATE: 22023"),
        ("SparkException", "[SCALAR_SUBQUERY_TOO_MANY_ROWS] More than one row. SQLSTATE: 21000"),
        ("SparkException", "[FAILED_EXECUTE_UDF] User defined function failed. SQLSTATE: 39000"),
        ("SparkRuntimeException", "[DUPLICATED_MAP_KEY] Duplicate map key 0 was found. SQLSTATE: 23505"),
        ("SparkRuntimeException", "[USER_RAISED_EXCEPTION] no0 SQLSTATE: P0001"),
        ("SparkRuntimeException", "Cannot create array with 2147483647 elements"),
        ("SparkUnsupportedOperationException", "[UNSUPPORTED_CALL] Cannot call. SQLSTATE: 0A000"),
        ("SparkUpgradeException", "[INCONSISTENT_BEHAVIOR_CROSS_VERSION] Another result. SQLSTATE: 42K0B"),
        ("api.python.PythonException", "Traceback (most recent call last):\nValueError: bad"),
    ],
)
def test_a_task_that_fails_on_its_data_is_the_authors_error(kind: str, message: str) -> None:
    error = raised(stage_failure(f"org.apache.spark.{kind}", message))
    assert isinstance(error, UserError)
    assert cause_of(error) == FailureCause.USER_ERROR


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("SparkException", "Python worker exited unexpectedly (crashed). Consider setting 'spark.python.worker"),
        ("SparkException", "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file f. SQLSTATE: KD001"),
        ("SparkException", "[TASK_WRITE_FAILED] Task failed while writing rows. SQLSTATE: 58030"),
        ("SparkException", "[INTERNAL_ERROR] Something is wrong. SQLSTATE: XX000"),
        ("SparkRuntimeException", "[INTERNAL_ERROR_STORAGE] A block is lost. SQLSTATE: XX000"),
        ("memory.SparkOutOfMemoryError", "[UNABLE_TO_ACQUIRE_MEMORY] Got 0 bytes. SQLSTATE: 53200"),
        ("sql.execution.UnknownException", "of a kind that is not known"),
    ],
)
@pytest.mark.parametrize("below", [TRACE, STATE_BELOW])
def test_a_task_that_fails_on_its_surroundings_may_be_tried_again(kind: str, message: str, below: str) -> None:
    error = raised(stage_failure(f"org.apache.spark.{kind}", message, below))
    assert isinstance(error, EngineError)
    assert cause_of(error) == FailureCause.FAULT


def test_a_cancelled_job_is_not_the_authors_error() -> None:
    text = "[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012"
    cancelled = TRACE + "[SPARK_JOB_CANCELLED] Job 3 cancelled. SQLSTATE: XXKDA"
    error = raised(stage_failure("org.apache.spark.SparkArithmeticException", text, cancelled))
    assert isinstance(error, EngineError)
