"""Where a Spark master is, whether it answers, and where a driver listens for its executors."""

from __future__ import annotations

import socket

import pytest
from lockgate_taskmanager.spark import session as sessions
from lockgate_taskmanager.spark.errors import EngineError
from lockgate_taskmanager.spark.master import Driver, addresses, reach


@pytest.mark.parametrize(
    ("master", "expected"),
    [
        ("spark://a:7078", (("a", 7078),)),
        ("spark://a,b:7078", (("a", 7077), ("b", 7078))),
        ("spark://[::1]:7077", (("::1", 7077),)),
        ("sc://a", (("a", 15002),)),
        ("sc://a:443/;use_ssl=true;token=x:1", (("a", 443),)),
    ],
)
def test_addresses(master: str, expected: tuple[tuple[str, int], ...]) -> None:
    assert addresses(master) == expected


@pytest.mark.parametrize("master", ["spark://a:70777", "spark://a:b", "spark://:7077", "sc://a:0", "spark://a,"])
def test_an_invalid_address_is_named(master: str) -> None:
    with pytest.raises(EngineError, match="is not HOST:PORT"):
        addresses(master)


def test_the_first_master_that_answers_will_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as master, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        ports = closed.getsockname()[1], master.getsockname()[1]
        assert reach(f"spark://127.0.0.1:{ports[0]},127.0.0.1:{ports[1]}") == "127.0.0.1"


@pytest.mark.parametrize("scheme", ["spark", "sc"])
def test_a_master_that_does_not_answer_is_one_sentence_before_java_starts(
    scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        master = f"{scheme}://127.0.0.1:{closed.getsockname()[1]}"
        with pytest.raises(EngineError, match=r"cannot be reached \(127.0.0.1:\d+: Connection refused\); start it"):
            sessions.start(master, {}, 1, ".")


@pytest.mark.parametrize(
    ("driver", "host", "bind"),
    [
        (Driver("t", "127.0.0.1", ""), "10.0.0.7", "10.0.0.7"),
        (Driver("t", "0.0.0.0", ""), "10.0.0.7", "10.0.0.7"),
        (Driver("t", "127.0.0.1", "localhost"), "10.0.0.7", "10.0.0.7"),
        (Driver("t", "0.0.0.0", "t1.example"), "t1.example", "0.0.0.0"),
        (Driver("t", "10.1.0.3", "t1.example"), "t1.example", "10.1.0.3"),
        (Driver("t", "127.0.0.1", "t1.example"), "t1.example", "0.0.0.0"),
        (Driver("t", "[::]", "[2001:db8::1]"), "[2001:db8::1]", "[::]"),
    ],
)
def test_executors_get_the_advertised_host_or_the_one_that_reached_the_master(
    driver: Driver, host: str, bind: str
) -> None:
    assert driver.settings("10.0.0.7") == {"spark.driver.host": host, "spark.driver.bindAddress": bind}


def test_on_other_cluster_managers_spark_finds_its_address_itself() -> None:
    assert Driver("t", "127.0.0.1", "").settings("") == {}


def test_the_application_is_named_after_the_task_manager() -> None:
    assert (Driver("tm-1").application, Driver().application) == ("lockgate tm-1", "lockgate")
