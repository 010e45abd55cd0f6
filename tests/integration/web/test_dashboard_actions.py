"""Each action of the pages by clicks in a real browser: its confirmation, its effect on the job, who may do it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lockgate_common.token_book import issue
from lockgate_coordinator.runtime import recovery_line
from lockgate_coordinator.runtime.recovery_line import MAX_DEATHS
from lockgate_ha.embedded import EmbeddedZooKeeper
from lockgate_proto import messages as m
from lockgate_proto.messages import JobState
from lockgate_web.dashboard import Dashboard

from tests.chromium import until
from tests.integration.coordinator.conftest import (
    PATIENT_MS,
    SECRET,
    NewCaller,
    NewCoordinator,
    NewTaskManager,
    graph,
    leading,
)
from tests.integration.coordinator.fake_task_manager import FakeFleet
from tests.integration.coordinator.test_coordinator_quarantine import Former
from tests.integration.web.conftest import KEY, Site

StaleElementReferenceException = pytest.importorskip("selenium.common.exceptions").StaleElementReferenceException
By = pytest.importorskip("selenium.webdriver.common.by").By
pytestmark = [pytest.mark.integration, pytest.mark.rotating]

CARDS = {
    "Take a savepoint ...": "savepoint",
    "Stop ...": "stop",
    "Cancel the job ...": "cancel",
    "Rescale ...": "rescale",
}
"""Buttons of the actions of a running job, each with its subcommand."""
DIALOG = "document.querySelector('dialog[open]')"


def _click(browser: Any, text: str, inside: str = "main") -> None:
    """On the button with that text, as a mouse does."""
    for tries in range(10):
        try:
            browser.find_element(By.XPATH, f"//{inside}//button[.='{text}']").click()
            return
        except StaleElementReferenceException:  # drawn anew meanwhile
            if tries == 9:
                raise


def _open_actions(browser: Any, url: str, key: str = KEY) -> None:
    browser.get("about:blank")  # else another part is no new page
    browser.get(f"{url}/jobs/{key}#actions")
    until(browser, "document.querySelector('.actions button')")


def _asked(browser: Any, button: str) -> str:
    """Opens the confirmation: what it says."""
    _click(browser, button)
    return str(until(browser, f"{DIALOG}.textContent"))


def _confirmed(browser: Any, verb: str, sign: str) -> None:
    """Confirms, waits for the answer, and closes the dialog."""
    _click(browser, verb, "dialog")
    until(browser, f"{DIALOG}.textContent.includes('{sign}')")
    _click(browser, "Close", "dialog")
    until(browser, f"!{DIALOG}")


def _savepoints(site: Site) -> list[int]:
    return [each["id"] for each in site.get(f"/api/v1/jobs/{KEY}/checkpoints").json if each["kind"] == "savepoint"]


@pytest.mark.parametrize("button", CARDS)
def test_an_action_that_is_not_confirmed_does_nothing(busy: Site, browser: Any, button: str) -> None:
    _open_actions(browser, busy.leader.dashboard)
    browser.execute_script("window.sent = 0; const real = fetch; window.fetch = (place, options) => {"
                           "if (options?.method === 'POST') window.sent++; return real(place, options); }")  # fmt: skip
    said = _asked(browser, button)
    assert f"lockgate {CARDS[button]} {KEY}" in said
    _click(browser, "Leave it", "dialog")
    until(browser, f"!{DIALOG}")
    assert browser.execute_script("return window.sent") == 0
    _asked(browser, button)
    _confirmed(browser, button.removesuffix(" ..."), "Done")
    assert browser.execute_script("return window.sent") == 1, "it would have been counted"


def test_a_savepoint_is_taken_and_disposed_of(busy: Site, browser: Any, fleet: FakeFleet) -> None:
    _open_actions(browser, busy.leader.dashboard)
    _asked(browser, "Take a savepoint ...")
    _confirmed(browser, "Take a savepoint", "Done: savepoint")
    (taken,) = _savepoints(busy)
    busy.api.until(
        KEY, lambda status: status.last_checkpoint is not None and status.last_checkpoint.checkpoint_id > taken
    )
    fleet.acknowledging = False  # the list stays as it is
    browser.execute_script("location.hash = 'checkpoints'")
    until(browser, f"document.getElementById('dispose-{taken}')")
    _click(browser, "Dispose")
    said = until(browser, f"{DIALOG}.textContent")
    assert f"Delete savepoint {taken} for good?" in said
    assert f"lockgate savepoint dispose {KEY} {taken}" in said
    assert _savepoints(busy) == [taken]
    _confirmed(browser, "Delete", "Done")
    assert _savepoints(busy) == []
    until(browser, f"!document.getElementById('dispose-{taken}')")


@pytest.mark.parametrize("is_drained", [False, True])
def test_a_job_is_stopped(busy: Site, browser: Any, is_drained: bool) -> None:
    _open_actions(browser, busy.leader.dashboard)
    if is_drained:
        browser.find_element(By.ID, "drain").click()
    assert f"lockgate stop {KEY}{' --drain' if is_drained else ''}Copy" in _asked(browser, "Stop ...")
    _confirmed(browser, "Stop", "Done: savepoint")
    until(browser, "document.querySelector('h1').textContent.includes('finished')")
    assert busy.api.state(KEY, JobState.FINISHED)
    assert busy.task_manager is not None
    assert bool(busy.task_manager.bodies(m.DrainSources)) is is_drained
    until(browser, "document.getElementById('main').textContent.includes('nothing can be done with it here')")


def test_a_job_is_cancelled(busy: Site, browser: Any) -> None:
    _open_actions(browser, busy.leader.dashboard)
    assert "without a savepoint" in _asked(browser, "Cancel the job ...")
    _confirmed(browser, "Cancel the job", "Done: the job is cancel")
    until(browser, "document.querySelector('h1').textContent.includes('canceled')")
    assert busy.api.state(KEY, JobState.CANCELED)
    assert _savepoints(busy) == []


def test_a_job_is_rescaled(busy: Site, browser: Any) -> None:
    _open_actions(browser, busy.leader.dashboard)
    wanted = browser.find_element(By.ID, "scale-count")
    wanted.clear()
    wanted.send_keys("2")
    assert f"lockgate rescale {KEY} count=2" in _asked(browser, "Rescale ...")
    _confirmed(browser, "Rescale", "Done")
    status = busy.api.until(KEY, lambda found: found.attempt == 2 and found.state is JobState.RUNNING)
    assert [(part.vertex_id, part.subtask) for part in status.subtasks] == [("source", 0), ("count", 0), ("count", 1)]
    until(browser, "document.getElementById('scale-count').value === '2'")


def test_a_rescale_that_is_refused_says_why(busy: Site, browser: Any) -> None:
    _open_actions(browser, busy.leader.dashboard)
    wanted = browser.find_element(By.ID, "scale-count")
    wanted.clear()
    wanted.send_keys("999")
    _asked(browser, "Rescale ...")
    _click(browser, "Rescale", "dialog")
    assert "128" in until(browser, f"{DIALOG}.querySelector('.bad').textContent")
    assert busy.api.status(KEY).attempt == 1


def test_a_job_that_is_held_back_is_released(
    server: EmbeddedZooKeeper,
    new_coordinator: NewCoordinator,
    caller: NewCaller,
    new_task_manager: NewTaskManager,
    browser: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recovery_line, "SETTLED_MS", PATIENT_MS)
    Former(server).submit(KEY, MAX_DEATHS)
    leader = leading(new_coordinator(web=Dashboard, dashboard="127.0.0.1:0"))
    api = caller(leader)
    new_task_manager().connect(leader.address)
    api.state(KEY, JobState.HELD_BACK)
    _open_actions(browser, leader.dashboard)
    assert f"lockgate release {KEY}" in _asked(browser, "Release ...")
    _confirmed(browser, "Release", "Done")
    assert api.state(KEY, JobState.RUNNING)
    until(browser, "[...document.querySelectorAll('.actions h2')].map(each => each.textContent).join()"
                   " === 'Savepoint,Stop,Cancel,Rescale'")  # fmt: skip


@pytest.fixture
def logged_in(
    new_coordinator: NewCoordinator,
    caller: NewCaller,
    new_task_manager: NewTaskManager,
    browser: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[str], Site]:
    """A job with a savepoint, and the browser of a visitor who has one role."""
    monkeypatch.setattr("lockgate_common.http.callers.is_own_user", lambda _accepted: False)

    def log_in(role: str) -> Site:
        file = tmp_path / "tokens.json"
        token = issue(file, SECRET.secret, "visitor", (role,), 0)
        leader = leading(new_coordinator(web=Dashboard, dashboard="127.0.0.1:0", tokens_file=str(file)))
        site = Site(leader, caller(leader), new_coordinator)
        new_task_manager().connect(leader.address)
        site.api("Submit", m.SubmitRequest(KEY, graph()))
        site.api.until(KEY, lambda status: status.state is JobState.RUNNING and status.checkpoints_completed > 0)
        site.api("TriggerSavepoint", m.TriggerSavepointRequest(KEY, request_id="first"))
        browser.get(leader.dashboard)
        until(browser, "document.getElementById('token')").send_keys(str(token))
        _click(browser, "Log in")
        until(browser, "document.getElementById('visitor').textContent.includes('visitor')")
        return site

    return log_in


@pytest.mark.parametrize(("role", "may"), [("read", False), ("submit", False), ("operate", True)])
def test_actions_are_for_those_who_may(logged_in: Callable[[str], Site], browser: Any, role: str, may: bool) -> None:
    site = logged_in(role)
    _open_actions(browser, site.leader.dashboard)
    buttons = "[...document.querySelectorAll('.actions section > p > button')]"
    found = browser.execute_script(f"return {buttons}.map(each => [each.textContent, !each.disabled])")
    assert found == [[text, may] for text in CARDS]
    assert (
        browser.execute_script("return document.querySelector('.actions').textContent.includes('needs the role')")
        is not may
    )
    browser.execute_script("location.hash = 'checkpoints'")
    until(browser, "document.querySelector('button[id^=dispose-]')")
    shown = "[...document.querySelectorAll('#take-savepoint, button[id^=dispose-]')].map(each => !each.disabled)"
    assert browser.execute_script(f"return {shown}") == [may, may]


def test_copy_puts_the_command_on_the_clipboard(busy: Site, browser: Any) -> None:
    _open_actions(browser, busy.leader.dashboard)
    allowed = {"origin": busy.leader.dashboard, "permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]}
    browser.execute_cdp_cmd("Browser.grantPermissions", allowed)
    line = "document.querySelector('.actions .command')"
    browser.find_element(By.CSS_SELECTOR, ".actions .command button").click()
    until(browser, f"{line}.querySelector('[role=status]').textContent === 'Copied'")
    copied = browser.execute_async_script("navigator.clipboard.readText().then(arguments[0], arguments[0])")
    assert copied == f"lockgate savepoint {KEY}"


@pytest.mark.parametrize("has_clipboard", [True, False])
def test_a_clipboard_that_refuses_is_not_said_to_have_the_command(
    busy: Site, browser: Any, has_clipboard: bool
) -> None:
    """There is none in a page that came without TLS from another machine."""
    _open_actions(browser, busy.leader.dashboard)
    refusing = (
        "{ writeText: () => Promise.reject(new DOMException('no', 'NotAllowedError')) }"
        if has_clipboard
        else "undefined"
    )
    browser.execute_script(f"Object.defineProperty(navigator, 'clipboard', {{ value: {refusing} }})")
    browser.find_element(By.CSS_SELECTOR, ".actions .command button").click()
    until(browser, "document.querySelector('.actions .command').textContent.includes('the command is selected')")
    assert browser.execute_script("return getSelection().toString()") == f"lockgate savepoint {KEY}"
    assert "Copied" not in browser.execute_script("return document.body.textContent")
