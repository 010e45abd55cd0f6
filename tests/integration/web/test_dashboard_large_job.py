"""The page of a job of 10,000 subtasks: what is sent and drawn does not grow with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from lockgate_proto import messages as m
from lockgate_web.live import PAGE

from tests.chromium import until
from tests.integration.coordinator.conftest import NewTaskManager, poll
from tests.integration.coordinator.fake_task_manager import FakeTaskManager
from tests.integration.web.conftest import KEY, Events, Site

By = pytest.importorskip("selenium.webdriver.common.by").By
pytestmark = [pytest.mark.integration, pytest.mark.rotating]

PARALLELISM, SLOTS = 5_000, 1_000
MOST_BYTES = 100_000
ROWS = "document.querySelectorAll('table[aria-label=Subtasks] tbody tr')"
NUMBERS = f"[...{ROWS}].map(row => row.cells[1].textContent).join()"


def _report(manager: FakeTaskManager, load: m.SubtaskLoad) -> None:
    """Of each subtask there."""
    deploy = manager.expect(m.Deploy)
    assert isinstance(deploy, m.Deploy)
    counters = (m.SubtaskCounters(subtask, load=load) for subtask in manager.subtasks(deploy))
    manager.send(m.Heartbeat(1, tuple(counters)))


@pytest.fixture
def large(site: Site, new_task_manager: NewTaskManager) -> Site:
    """With a job of two vertices, of whose subtasks each has reported its load."""
    managers = [new_task_manager(slots=SLOTS).connect(site.leader.address) for _ in range(PARALLELISM // SLOTS)]
    count = m.KeyedAggregate(("partition",), (m.Aggregate("n", m.AggregateFunction.COUNT),))
    vertices = (
        m.Vertex("source", "", PARALLELISM, PARALLELISM, (m.Operator("numbers", "", m.GeneratorSource(PARALLELISM)),)),
        m.Vertex(
            "count",
            "",
            PARALLELISM,
            PARALLELISM,
            (m.Operator("total", "", count), m.Operator("out", "", m.ConsoleSink())),
        ),
    )
    edges = (m.Edge("source", "count", m.Partitioning.HASH, ("partition",)),)
    options = m.CheckpointOptions(interval_ms=600_000, timeout_ms=600_000)
    site.api("Submit", m.SubmitRequest(KEY, m.JobGraph("large", vertices, edges, options)))
    site.api.state(KEY, m.JobState.RUNNING)
    site.task_manager = managers[0]
    for manager in managers:
        _report(manager, m.SubtaskLoad(730, 120, 1_700_000_000_000, 95_000, True, True))
    poll(lambda: sum(part.load is not None for part in site.api.status(KEY).subtasks) == 2 * PARALLELISM)
    return site


def test_a_job_of_ten_thousand_subtasks_is_a_small_page(
    large: Site, browser: Any, open_events: Callable[..., Events]
) -> None:
    assert large.task_manager is not None
    browser.get(f"{large.leader.dashboard}/jobs/{KEY}")
    until(browser, f"{ROWS}.length === {PAGE} && document.getElementById('vertex-count')")
    assert "5000 running" in browser.execute_script("return document.getElementById('vertex-count').textContent")
    assert until(browser, "document.querySelector('.pager').textContent") == "Before1 to 100 of 10000Next"
    browser.find_element(By.ID, "vertex-count").click()
    for first in (100, 200, 300):
        until(browser, "document.querySelector('.pager').textContent.includes('of 5000')")
        browser.find_element(By.ID, "after").click()
        until(browser, f"{NUMBERS} === '{','.join(map(str, range(first, first + PAGE)))}'")
    browser.find_element(By.ID, "before").click()
    until(browser, f"{NUMBERS}.startsWith('200,')")
    events = open_events(large.address, f"/api/v1/jobs/{KEY}/events")
    sizes = [_next_status(events)]
    for busy in (100, 200, 300):
        _report(large.task_manager, m.SubtaskLoad(busy))
        sizes.append(_next_status(events))
    until(browser, "document.querySelector('table[aria-label=Vertices] tbody').textContent.includes('64 %')")
    assert browser.execute_script(f"return {ROWS}.length") == PAGE
    assert browser.execute_script("return document.querySelectorAll('main *').length") < 20 * PAGE
    sizes += [
        len(large.get(f"/api/v1/jobs/{KEY}/{path}").body) for path in ("subtasks", "subtasks?offset=9900", "graph")
    ]
    assert max(sizes) < MOST_BYTES, sizes


def _next_status(events: Events) -> int:
    """Its bytes."""
    kind = b""
    while line := events.answer.readline():
        kind = line if line.startswith(b"event: ") else kind
        if line.startswith(b"data: ") and kind == b"event: status\n":
            assert b'"parallelism": 5000' in line
            return len(line)
    raise AssertionError("the stream has ended")
