"""The pages in a real browser, without and with a death of their coordinator. Skipped where there is no Chromium."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from typing import Any

import pytest
from lockgate_proto import messages as m
from lockgate_web.dashboard import Dashboard

from tests.integration.coordinator.conftest import NewCoordinator, NewTaskManager, graph, leading, poll
from tests.integration.coordinator.test_coordinator_failover import crash
from tests.integration.web.conftest import KEY, Site

webdriver = pytest.importorskip("selenium.webdriver")
Keys = pytest.importorskip("selenium.webdriver.common.keys").Keys
pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(
        not (shutil.which("chromium") and shutil.which("chromedriver")),
        reason="needs Debian's packages chromium and chromium-driver",
    ),
]

_PATIENCE_S = 60.0
_OPTIONS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1280,1000")
_NAME = "<img src=x onerror='document.title=1'>"


@pytest.fixture
def browser() -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for option in _OPTIONS:
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.chrome.service.Service(shutil.which("chromedriver"))
    opened = webdriver.Chrome(options=options, service=service)
    yield opened
    opened.quit()


def until(browser: Any, expression: str) -> Any:
    """The value of a JavaScript expression once it is true."""
    deadline = time.monotonic() + _PATIENCE_S
    while not (value := browser.execute_script(f"return {expression}")):
        said = browser.execute_script("return document.body.textContent")
        assert time.monotonic() < deadline, f"{expression} is still false: {said[:1000]}"
    return value


def _text(browser: Any) -> str:
    return str(browser.execute_script("return document.getElementById('main').textContent"))


@pytest.fixture
def shown(site: Site, new_task_manager: NewTaskManager) -> Site:
    """With a running job whose name is HTML."""
    site.task_manager = new_task_manager().connect(site.leader.address)
    site.api("Submit", m.SubmitRequest(KEY, graph(name=_NAME)))
    site.api.until(KEY, lambda status: status.state is m.JobState.RUNNING and status.checkpoints_completed > 0)
    return site


def test_every_page_shows_the_job_and_loads_nothing_from_elsewhere(shown: Site, browser: Any) -> None:
    url = shown.leader.dashboard
    browser.get(url)
    until(
        browser, f"document.getElementById('job-{KEY}') && document.getElementById('connection').className === 'live'"
    )
    assert "coordinator" in _text(browser).lower()
    size = browser.execute_script(
        "return performance.getEntriesByType('resource').filter(each => !each.name.includes('/api/'))"
        ".reduce((sum, each) => sum + each.transferSize, 0)"
    )
    assert 10_000 < size < 300_000
    browser.get(f"{url}/jobs/{KEY}")
    until(browser, "document.getElementById('vertex-count')")
    for part, sign in (("checkpoints", "Checkpoints and savepoints"), ("failovers", "Events"), ("actions", "Rescale")):
        browser.execute_script(f"location.hash = '{part}'")
        until(browser, f"document.getElementById('main').textContent.includes('{sign}')")
    assert _NAME in _text(browser)
    assert browser.execute_script("return document.querySelectorAll('main img').length") == 0
    names = browser.execute_script("return performance.getEntriesByType('resource').map(e => e.name)")
    assert all(name.startswith(f"{url}/") for name in names)
    assert not [line for line in browser.get_log("browser") if line["level"] == "SEVERE"]


def test_the_keyboard_reaches_a_vertex_and_an_action(shown: Site, browser: Any) -> None:
    browser.get(f"{shown.leader.dashboard}/jobs/{KEY}")
    until(browser, "document.getElementById('vertex-count')")
    browser.execute_script("document.getElementById('vertex-count').focus()")
    webdriver.ActionChains(browser).send_keys(Keys.ENTER).perform()
    until(browser, "document.getElementById('main').textContent.includes('Subtasks of count')")
    assert until(browser, "document.activeElement.id") == "vertex-count"
    browser.execute_script("location.hash = 'actions'")
    until(browser, "[...document.querySelectorAll('button')].some(each => each.textContent === 'Take a savepoint ...')")
    browser.execute_script(
        "[...document.querySelectorAll('button')].find(each => each.textContent === 'Take a savepoint ...').click()"
    )
    until(browser, "document.querySelector('dialog[open]')")
    browser.execute_script("document.getElementById('confirm').click()")
    until(browser, "document.querySelector('dialog').textContent.includes('Done: savepoint')")


def test_a_click_counts_although_the_page_changes_meanwhile(shown: Site, browser: Any) -> None:
    browser.get(f"{shown.leader.dashboard}/jobs/{KEY}")
    until(browser, "document.getElementById('vertex-source')")
    place = browser.execute_script("return document.getElementById('vertex-source').getBoundingClientRect().toJSON()")
    x, y = int(place["x"] + place["width"] / 2), int(place["y"] + place["height"] / 2)
    actions = webdriver.ActionChains(browser)
    actions.w3c_actions.pointer_action.move_to_location(x, y)
    actions.w3c_actions.pointer_action.pointer_down()
    actions.w3c_actions.pointer_action.pause(1.5)  # several statuses come
    actions.w3c_actions.pointer_action.pointer_up()
    actions.perform()
    until(browser, "document.getElementById('main').textContent.includes('Subtasks of source')")


def test_an_open_page_follows_to_another_coordinator_without_a_reload(
    shown: Site, browser: Any, new_coordinator: NewCoordinator
) -> None:
    standby = new_coordinator(web=Dashboard, dashboard="127.0.0.1:0")
    before = shown.api.status(KEY).token
    poll(lambda: shown.leader._dashboards() == (standby.dashboard,))  # its pages may ask those only
    browser.get(f"{shown.leader.dashboard}/jobs/{KEY}")
    until(browser, "document.getElementById('main').textContent.includes('token')")
    browser.execute_script("window.isTheSamePage = true")
    probe = f"{standby.dashboard}/healthz"
    until(browser, f"performance.getEntriesByType('resource').some(each => each.name.startsWith('{probe}'))")
    crash(shown.leader)
    shown.leader.stop()
    leading(standby)
    until(browser, f"document.getElementById('main').textContent.includes('token {before + 1}')")
    place = standby.dashboard.partition("//")[2]
    assert browser.execute_script("return document.getElementById('connection').textContent") == f"live, by {place}"
    assert browser.execute_script("return window.isTheSamePage")
