"""Code of the author's in this process is ended from another thread, and nothing else is."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator

import pytest
from lockgate_taskmanager.spark import user_code
from lockgate_taskmanager.spark.raised import Exited, raised
from lockgate_taskmanager.task.program import Canceled


def ended(thread: threading.Thread) -> bool:
    """Ends the author's code in the thread as a cancel does: again and again."""
    for _ in range(600):
        assert thread.ident is not None
        user_code.end(thread.ident)
        thread.join(0.1)
        if not thread.is_alive():
            return True
    return False


@pytest.mark.parametrize("stubborn", [False, True])
def test_a_loop_without_end_is_ended(stubborn: bool) -> None:
    inside, found = threading.Event(), list[BaseException]()

    def endless() -> None:
        while True:
            try:
                inside.set()
                while True:
                    pass
            except Exception:
                if not stubborn:
                    raise

    def work() -> None:
        try:
            with user_code.may_be_ended():
                endless()
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert inside.wait(120)
    assert ended(thread)
    assert [type(item) for item in found] == [Canceled]


def test_nothing_is_raised_outside_the_authors_code() -> None:
    here = threading.get_ident()
    assert not user_code.end(here)
    with user_code.may_be_ended():
        pass
    assert not user_code.end(here)


@pytest.mark.parametrize("error", [SystemExit(3), SystemExit(), asyncio.CancelledError("late")])
def test_what_would_end_the_process_is_an_exception_outside(error: BaseException) -> None:
    with pytest.raises(Exited) as caught, user_code.may_be_ended():
        raise error
    assert caught.value.__cause__ is error
    assert raised(caught.value).startswith(f"the Python function raised {type(error).__name__}")


def test_a_generator_in_the_block_can_be_closed() -> None:
    def numbers() -> Generator[int, None, None]:
        with user_code.may_be_ended():
            yield from range(5)

    found = numbers()
    assert next(found) == 0
    found.close()
    assert list(found) == []


def test_a_pending_cancellation_is_not_raised_after_the_authors_code() -> None:
    for _ in range(200):
        try:
            with user_code.may_be_ended():
                user_code.end(threading.get_ident())
        except Canceled:
            pass
        total = sum(range(100))  # an exception that had stayed would come here
        assert total == 4950
