"""Which failures of Spark are the author's, which are of the data, and which are of the surroundings."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any, cast

import grpc
import pytest
from lockgate_proto.messages import FailureCause
from lockgate_taskmanager.runtime.failures import cause_of
from lockgate_taskmanager.spark.careful import may_be_a_record
from lockgate_taskmanager.spark.chain import _python
from lockgate_taskmanager.spark.connect import clone_session
from lockgate_taskmanager.spark.errors import EngineDefect, EngineError, explained, lost_session, sentence
from lockgate_taskmanager.spark.raised import BY_INPUT, UNREADABLE_VALUE
from lockgate_taskmanager.task.program import DataError, ProgramError, UserCodeFailed, UserError
from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, ArithmeticException, ParseException, PySparkException, PySparkTypeError
from pyspark.errors.exceptions.connect import AnalysisException as ConnectAnalysisException
from pyspark.errors.exceptions.connect import SparkConnectGrpcException

TRACEBACK = "Traceback (most recent call last):"
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


def unknown_to_pyspark(cause: str) -> Py4JError:
    """What classic PySpark lets through: the class of the cause is one that it has no exception for."""
    return Py4JError(
        "An error occurred while calling o114.getResult.\n: org.apache.spark.SparkException: Exception thrown in"
        f" awaitResult: {TRACE.rstrip()}\nCaused by: {cause}{TRACE}"
    )


def test_a_refused_record_is_known_where_pyspark_has_no_exception_for_it() -> None:
    malformed = (
        "org.apache.spark.SparkException: [MALFORMED_RECORD_IN_PARSING] Malformed records: no json.\n"
        "Parse Mode: FAILFAST. SQLSTATE: 22023"
    )
    with pytest.raises(DataError, match=r"^operator .x.: Malformed records: no json\.$"), explained("operator 'x'"):
        raise unknown_to_pyspark(malformed)
    for other in ("java.io.IOException: no space", "org.apache.spark.SparkException: [X] y. SQLSTATE: KD001"):
        with pytest.raises(EngineError), explained("operator 'x'"):
            raise unknown_to_pyspark(other + STATE_BELOW)


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
def test_a_task_that_fails_on_its_data_is_a_fault_of_the_data(kind: str, message: str) -> None:
    error = raised(stage_failure(f"org.apache.spark.{kind}", message))
    assert isinstance(error, DataError)
    assert cause_of(error) == FailureCause.DATA_ERROR


def test_a_record_that_python_cannot_hold_is_a_fault_of_the_data() -> None:
    text = f"{UNREADABLE_VALUE} 'at': years; the record: {{}}"
    there = f"lockgate_taskmanager.spark.functions.rows.UnreadableRecordError: {text}"
    error = raised(stage_failure("org.apache.spark.api.python.PythonException", f"{TRACEBACK}\n{there}"))
    assert isinstance(error, DataError)
    assert may_be_a_record(error)
    assert str(error) == f"operator 'x': {text}"


@pytest.mark.parametrize(
    "there", ["SystemExit: 3; the key: 1; the record: {'n': 1}", "SystemExit", "KeyboardInterrupt"]
)
def test_a_function_that_ends_its_worker_fails_the_job(there: str) -> None:
    error = raised(stage_failure("org.apache.spark.api.python.PythonException", f"{TRACEBACK}\n{there}"))
    assert isinstance(error, UserError)
    assert str(error) == (
        f"operator 'x': the Python function raised {there}; let it raise an error instead of ending the process"
    )


def test_transient_errors_of_user_code_are_distinguished() -> None:
    for raised_there in ("TimeoutError: no answer", "requests.exceptions.ConnectionError: away", "my.Odd"):
        error = raised(stage_failure("org.apache.spark.api.python.PythonException", f"{TRACEBACK}\n{raised_there}"))
        assert isinstance(error, UserCodeFailed), raised_there
        assert cause_of(error) == FailureCause.USER_CODE


@pytest.mark.parametrize(
    ("name", "is_outage"),
    [
        ("ConnectionResetError", True),
        ("requests.exceptions.ReadTimeout", True),
        ("httpx.ConnectTimeout", True),
        ("psycopg2.errors.OperationalError", True),
        ("sqlalchemy.exc.OperationalError", True),
        ("botocore.exceptions.EndpointConnectionError", True),
        ("google.api_core.exceptions.ServiceUnavailable", True),
        ("urllib3.exceptions.MaxRetryError", True),
        ("redis.exceptions.ConnectionError", True),
        ("psycopg2.errors.DataError", False),
        ("psycopg2.errors.UniqueViolation", False),
        ("json.decoder.JSONDecodeError", False),
        ("my.BadRecord", False),
    ],
)
def test_an_outage_is_no_fault_of_a_record(name: str, is_outage: bool) -> None:
    error = raised(stage_failure("org.apache.spark.api.python.PythonException", f"{TRACEBACK}\n{name}: no answer"))
    assert may_be_a_record(error) is not is_outage


def test_a_planning_function_that_meets_an_outage_may_be_tried_again() -> None:
    class OperationalError(Exception):
        """As drivers of databases name it."""

    def function(_frame: Any) -> Any:
        raise OperationalError("the server closed the connection")

    frame = cast(Any, SimpleNamespace(columns=["a"]))
    with pytest.raises(UserCodeFailed, match="OperationalError: the server closed") as caught:
        _python(frame, function, "operator 'x'")
    assert caught.value.is_environmental


@pytest.mark.parametrize(
    ("there", "kind"),
    [
        ("json.decoder.JSONDecodeError: no json", DataError),
        ("decimal.InvalidOperation: no number", DataError),
        ("binascii.Error: no base64", DataError),
        (f"__main__.Bad: half a record\n{BY_INPUT}", DataError),
        (f"__main__.Bad\n{BY_INPUT}", DataError),
        ("__main__.Bad: half a record", UserCodeFailed),
        ("my.JSONDecodeError: no json", UserCodeFailed),
        ("json.nothing.JSONDecodeError: no json", UserCodeFailed),
        ("json.decoder.scanner: no exception", UserCodeFailed),
        ("socket.gaierror: no name", UserCodeFailed),
        ("ssl.SSLCertVerificationError: a ValueError and an OSError", UserCodeFailed),
    ],
)
def test_an_error_in_a_python_worker_counts_as_in_the_task_manager(there: str, kind: type[Exception]) -> None:
    error = raised(stage_failure("org.apache.spark.api.python.PythonException", f"{TRACEBACK}\n{there}"))
    assert type(error) is kind
    assert str(error) == f"operator 'x': the Python function raised {there.partition(chr(10))[0]}"


def test_a_planning_function_is_not_blamed_for_what_surrounds_spark() -> None:
    frame = cast(Any, SimpleNamespace(columns=["a"]))
    lost = str(stage_failure("ExecutorLostFailure", "the executor 1 exited"))
    cases: list[tuple[PySparkException, type[ProgramError]]] = [
        (SparkConnectGrpcException(lost), EngineError),
        (SparkConnectGrpcException("(org.postgresql.util.PSQLException) Connection to db:5432 refused."), EngineError),
        (ConnectAnalysisException("[TABLE_OR_VIEW_NOT_FOUND] t is not there."), UserError),
        (PySparkTypeError("[NOT_COLUMN] Argument `col` should be a Column."), UserError),
        (PySparkException("[ANY] PySpark itself."), UserError),
    ]
    for error, kind in cases:

        def function(_frame: Any, error: PySparkException = error) -> Any:
            raise error

        with pytest.raises(ProgramError, match=r"^operator 'x': ") as caught:
            _python(frame, function, "operator 'x'")
        assert type(caught.value) is kind, error


def test_a_query_that_is_wrong_without_any_record_stays_the_authors_error_while_records_run() -> None:
    with pytest.raises(UserError), explained("operator 'x'", on_records=True):
        raise AnalysisException("[TABLE_OR_VIEW_NOT_FOUND] t is not there.")
    with pytest.raises(DataError), explained("operator 'x'", on_records=True):
        raise ArithmeticException("[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012")
    with pytest.raises(UserError), explained("operator 'x'"):
        raise ArithmeticException("[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012")


def test_a_data_error_knows_the_query_and_the_part_of_it() -> None:
    text = "[CAST_INVALID_INPUT] No. SQLSTATE: 22018\n== SQL (line 1, position 8) ==\nSELECT CAST(n AS INT) AS m\n"
    error = raised(stage_failure("org.apache.spark.SparkNumberFormatException", f"{text}       ^^^^^^^^^^^^^^\n"))
    assert isinstance(error, DataError)
    assert (error.query, error.fragment) == ("SELECT CAST(n AS INT) AS m", "CAST(n AS INT)")


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("org.apache.spark.SparkException", "[INTERNAL_ERROR] Something is wrong. SQLSTATE: XX000"),
        ("java.lang.ClassCastException", "class A cannot be cast to class B"),
        ("scala.MatchError", "VariantType (of class X)"),
    ],
)
def test_an_error_of_spark_is_distinguished_from_its_environment(kind: str, message: str) -> None:
    error = raised(stage_failure(kind, message))
    assert isinstance(error, EngineDefect)
    assert cause_of(error) == FailureCause.INTERNAL_ERROR


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("SparkException", "Python worker exited unexpectedly (crashed). Consider setting 'spark.python.worker"),
        ("SparkException", "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file f. SQLSTATE: KD001"),
        ("SparkException", "[TASK_WRITE_FAILED] Task failed while writing rows. SQLSTATE: 58030"),
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


class ConnectError(PySparkException):
    """As the Connect client raises it."""

    def __init__(self, message: str, status: str = "UNKNOWN") -> None:
        super().__init__(message)
        self._status = status

    def getGrpcStatusCode(self) -> Any:
        return SimpleNamespace(name=self._status)


LOST = "has lost the session (it was restarted, or has ended it)"


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        (ConnectError("[INVALID_HANDLE.SESSION_CHANGED] The handle 1 is invalid. SQLSTATE: HY000"), LOST),
        (ConnectError("[INVALID_HANDLE.SESSION_CLOSED] The handle 1 is invalid. SQLSTATE: HY000"), LOST),
        (PySparkException(errorClass="NO_ACTIVE_SESSION", messageParameters={}), LOST),
        (PySparkException("Received incorrect server side session identifier for request. (1 != 2)"), LOST),
        (ConnectError("<_InactiveRpcError of RPC that terminated with:\n\tstatus", "UNAVAILABLE"), "does not answer"),
        (ConnectError("<_MultiThreadedRendezvous of RPC\n", "DEADLINE_EXCEEDED"), "does not answer"),
    ],
)
def test_a_lost_connect_server_is_one_sentence_and_no_fault_of_the_author(
    error: PySparkException, problem: str
) -> None:
    caught = raised(error)
    assert isinstance(caught, EngineError)
    assert str(caught) == f"operator 'x': the Spark Connect server {problem}"
    assert cause_of(caught) == FailureCause.FAULT


def test_it_is_not_blamed_on_a_python_function_that_meets_it() -> None:
    def function(_frame: Any) -> Any:
        raise ConnectError("[INVALID_HANDLE.SESSION_CHANGED] The handle 1 is invalid.")

    frame = cast(Any, SimpleNamespace(columns=["a"]))
    with pytest.raises(EngineError, match="the Spark Connect server has lost the session"):
        _python(frame, function, "operator 'x'")


class CloneError(grpc.RpcError):
    """As cloneSession raises it: gRPC's own, with the server's sentence in it."""

    def __init__(self, status: grpc.StatusCode, details: str) -> None:
        super().__init__(f'<_InactiveRpcError of RPC that terminated with:\n\tdetails = "{details}"\n>')
        self._status = status

    def code(self) -> grpc.StatusCode:
        return self._status


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        (CloneError(grpc.StatusCode.INTERNAL, "[INVALID_HANDLE.SESSION_NOT_FOUND] The handle 1 is invalid."), LOST),
        (CloneError(grpc.StatusCode.UNAVAILABLE, "failed to connect"), "does not answer"),
    ],
)
def test_a_session_that_can_no_longer_be_cloned_is_lost(error: Exception, problem: str) -> None:
    def refuse() -> None:
        raise error

    session = SimpleNamespace(cloneSession=refuse)
    with pytest.raises(EngineError, match=re.escape(f"the Spark Connect server {problem}")):
        clone_session(session)


def test_other_errors_of_a_connect_server_are_unchanged() -> None:
    for error in (ConnectError("[UNKNOWN_FUNCTION] no", "INTERNAL"), ParseException("[INVALID_HANDLE.SESSION_CLOSED]")):
        assert not lost_session(error)


def test_grpc_errors_are_reported_with_their_details() -> None:
    text = (
        "<_InactiveRpcError of RPC that terminated with:\n\tstatus = StatusCode.UNAUTHENTICATED\n"
        '\tdetails = "Invalid authentication token"\n\tdebug_error_string = "UNAUTHENTICATED: {grpc_status:16}"\n>'
    )
    assert sentence(ConnectError(text, "UNAUTHENTICATED")) == "Invalid authentication token"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "An error occurred while calling o7.get.\n: java.util.concurrent.ExecutionException: Exception by job"
            "\n\tat A.b(C.scala:1)\nCaused by: org.apache.spark.SparkException: [SPARK_JOB_CANCELLED] Job 3 cancelled"
            " part of cancelled job tags SQLSTATE: XXKDA\n\tat A.b(C.scala:1)\n",
            "Job 3 cancelled part of cancelled job tags",
        ),
        (
            "An error occurred while calling o7.get.\n: java.util.concurrent.ExecutionException: Exception by job"
            "\n\tat A.b(C.scala:1)\nCaused by: org.apache.spark.SparkException: Job aborted due to stage failure: Task"
            " (TID 5) (host executor driver): org.apache.spark.SparkException: Python worker exited unexpectedly"
            "\n\tat A.b(C.scala:1)\nCaused by: java.io.EOFException\n\tat A.b(C.scala:1)\n",
            "Python worker exited unexpectedly",
        ),
        ("Answer from Java side is empty", "Answer from Java side is empty"),
    ],
)
def test_an_engine_error_says_what_the_jvm_says(text: str, words: str) -> None:
    with pytest.raises(EngineError) as caught, explained("operator 'x'"):
        raise Py4JError(text)
    assert str(caught.value) == f"operator 'x': Spark failed: {words}"
