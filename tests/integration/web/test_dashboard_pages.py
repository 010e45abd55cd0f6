"""The pages in a real browser, without and with a death of their coordinator."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from lockgate_common.token_book import issue, remove
from lockgate_coordinator.runtime import removals
from lockgate_ha.records import JobRecords
from lockgate_proto import messages as m
from lockgate_web.dashboard import Dashboard
from lockgate_web.shared_watch import SharedWatch

from tests.chromium import faults, until
from tests.integration.coordinator.conftest import (
    SECRET,
    NewCoordinator,
    NewTaskManager,
    abort_one,
    graph,
    leading,
    poll,
)
from tests.integration.coordinator.fake_task_manager import FakeFleet, FakeTaskManager
from tests.integration.coordinator.test_coordinator_failover import crash
from tests.integration.web.conftest import KEY, Site

webdriver = pytest.importorskip("selenium.webdriver")
Keys = pytest.importorskip("selenium.webdriver.common.keys").Keys
Axe = pytest.importorskip("axe_core_python.selenium").Axe
pytestmark = pytest.mark.integration

PARTS = {"checkpoints": "Checkpoints and savepoints", "failovers": "Events", "actions": "Rescale"}
"""Of a job's page, besides its graph: a text on each."""
PHONE = {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": True}
_NAME = "<img src=x onerror='document.title=1'>"


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
    for part, sign in PARTS.items():
        browser.execute_script(f"location.hash = '{part}'")
        until(browser, f"document.getElementById('main').textContent.includes('{sign}')")
    assert _NAME in _text(browser)
    assert browser.execute_script("return document.querySelectorAll('main img').length") == 0
    names = browser.execute_script("return performance.getEntriesByType('resource').map(e => e.name)")
    assert all(name.startswith(f"{url}/") for name in names)
    assert not faults(browser)


@pytest.mark.parametrize("part", ["history.js", "style.css"])
def test_a_page_whose_part_does_not_load_is_loaded_again(shown: Site, browser: Any, part: str) -> None:
    """Chromium gives up what it is loading when the address of any interface of the machine changes."""
    browser.execute_cdp_cmd("Network.enable", {})
    browser.execute_cdp_cmd("Network.setBlockedURLs", {"urls": [f"*/{part}"]})
    browser.get(f"{shown.leader.dashboard}/jobs/{KEY}")
    until(browser, f"performance.getEntriesByType('resource').some(each => each.name.endsWith('/{part}'))")
    browser.execute_cdp_cmd("Network.setBlockedURLs", {"urls": []})
    until(browser, "document.getElementById('vertex-count') && getComputedStyle(document.body).margin === '0px'")
    until(browser, "document.readyState === 'complete' && !history.state && 'it begins to count anew'")


def test_a_page_whose_part_never_loads_says_so_after_a_few_times(shown: Site, browser: Any) -> None:
    browser.execute_cdp_cmd("Network.enable", {})
    browser.execute_cdp_cmd("Network.setBlockedURLs", {"urls": ["*/dom.js"]})
    browser.get(f"{shown.leader.dashboard}/jobs/{KEY}")
    until(browser, "document.getElementById('connection').textContent === 'the page could not be loaded: reload it'")
    assert browser.execute_script("return history.state.times") == 6


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_keeps_the_rules_of_accessibility(shown: Site, browser: Any, scheme: str) -> None:
    """axe's rules: contrast, names and roles of elements, order of headings."""
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    )
    assert browser.execute_script(f"return matchMedia('(prefers-color-scheme: {scheme})').matches")
    found = {}
    for path, expression in (
        ("", f"document.getElementById('job-{KEY}')"),
        (f"/jobs/{KEY}", "document.getElementById('vertex-count')"),
        *(
            (f"/jobs/{KEY}#{part}", f"document.getElementById('main').textContent.includes('{PARTS[part]}')")
            for part in PARTS
        ),
    ):
        browser.get("about:blank")  # else another part is no new page
        browser.get(f"{shown.leader.dashboard}{path}")
        until(browser, expression)
        result = Axe().run(browser)
        assert len(result["passes"]) > 10
        found |= {
            f"{path or '/'} {rule['id']}": [node["html"][:300] for node in rule["nodes"]]
            for rule in result["violations"]
        }
    assert found == {}


def test_no_page_is_wider_than_a_phone(shown: Site, browser: Any) -> None:
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", PHONE)
    wide = {}
    for path, expression in (
        ("", f"document.getElementById('job-{KEY}')"),
        (f"/jobs/{KEY}", "document.getElementById('vertex-count')"),
        *(
            (f"/jobs/{KEY}#{part}", f"document.getElementById('main').textContent.includes('{PARTS[part]}')")
            for part in PARTS
        ),
    ):
        browser.get("about:blank")  # else another part is no new page
        browser.get(f"{shown.leader.dashboard}{path}")
        until(browser, expression)
        wide[path] = browser.execute_script("return document.documentElement.scrollWidth")
    assert max(wide.values()) <= 390, wide


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


def test_the_load_of_vertices_and_subtasks_is_shown(shown: Site, browser: Any) -> None:
    manager = shown.task_manager
    assert manager is not None
    subtask = m.SubtaskId(manager.running[0], "count", 0)
    load = m.SubtaskLoad(730, 120, 1_700_000_000_000, 95_000, True, True)
    source = m.SubtaskId(manager.running[0], "source", 0)
    behind = m.SubtaskLoad(backlog_bytes=70_000, backlog_splits=2, has_backlog_bytes=True, has_backlog_splits=True)
    manager.send(m.Heartbeat(1, (m.SubtaskCounters(subtask, load=load), m.SubtaskCounters(source, load=behind))))
    browser.get(f"{shown.leader.dashboard}/jobs/{KEY}")
    box = "document.getElementById('vertex-count')"
    until(browser, f"{box}.textContent.includes('73 % busy, 12 % waits, lag 2 min')")
    assert until(browser, f"[...{box}.querySelectorAll('.heat')].map(each => each.getAttribute('class')).join()") == (
        "heat busy,heat busy,heat backpressured,heat idle"
    )
    until(browser, "document.getElementById('vertex-source').textContent.includes('68.4 KiB left')")
    until(browser, "document.getElementById('main').textContent.includes('backlog 68.4 KiB in 2 splits')")
    rows = "[...document.querySelectorAll('table[aria-label=Subtasks] tbody tr')]"
    texts = f"{rows}.map(row => [...row.cells].map(each => each.textContent).join('|'))"
    until(browser, f"{texts}.some(each => each.endsWith('|73 %|12 %|15 %|2023-11-14 22:13:20|2 min|-'))")
    until(browser, f"{texts}.some(each => each.endsWith('|-|-|68.4 KiB in 2 splits'))")
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", PHONE)
    row = "document.querySelector('table[aria-label=Vertices] tbody tr:nth-child(2)')"
    cells = f"[...{row}.cells].filter(each => each.checkVisibility() && each.getBoundingClientRect().right <= 390)"
    readable = f"{cells}.map(each => each.textContent).join('|')"
    until(browser, f"{readable} === 'count|2023-11-14 22:13:20|2 min'")


def test_a_job_page_that_is_opened_directly_names_its_cluster_and_shows_utc(shown: Site, browser: Any) -> None:
    browser.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": "Asia/Kathmandu"})
    browser.get(f"{shown.leader.dashboard}/jobs/{KEY}")
    until(browser, "document.getElementById('cluster').textContent === 'cluster default'")
    submitted = datetime.fromtimestamp(shown.api.status(KEY).submitted_unix_ms // 1000, UTC)
    until(browser, f"document.getElementById('main').textContent.includes('{submitted:%Y-%m-%d %H:%M:%S} UTC')")


def test_the_traceback_of_the_jobs_code_opens_with_a_click_and_is_text(shown: Site, browser: Any) -> None:
    """And stays open while the page changes."""
    manager = shown.task_manager
    assert manager is not None
    text = f'Traceback (most recent call last):\n  File "a.py", line 3, in f\nKeyError: "{_NAME}"'
    failed = m.SubtaskReport(
        m.SubtaskId(manager.running[0], "count", 0),
        m.SubtaskPhase.SUBTASK_FAILED,
        m.FailureCause.USER_CODE,
        "count-0: KeyError",
        m.FailurePlace("count-1", traceback=text),
    )
    browser.get(f"{shown.leader.dashboard}/jobs/{KEY}")
    until(browser, "document.getElementById('vertex-count')")
    assert not browser.execute_script("return document.getElementById('traceback')")
    manager.send(failed)
    trace = "document.getElementById('traceback')"
    assert until(browser, f"{trace} && {trace}.querySelector('pre').textContent") == text
    assert not browser.execute_script(f"return {trace}.open || {trace}.querySelector('pre').checkVisibility()")
    browser.execute_script(f"{trace}.querySelector('summary').focus()")
    webdriver.ActionChains(browser).send_keys(Keys.ENTER).perform()
    until(browser, f"{trace}.querySelector('pre').checkVisibility()")
    browser.execute_script(
        "window.heard = 0; new MutationObserver(() => { window.heard++; })"
        ".observe(document.getElementById('main').querySelector('h1').parentNode, { childList: true })"
    )
    shown.api("Cancel", m.CancelRequest(KEY))
    until(browser, "document.querySelector('h1').textContent.includes('canceled')")
    assert browser.execute_script("return window.heard") > 0
    assert browser.execute_script(f"return {trace}.open") is True
    assert browser.execute_script("return document.querySelectorAll('main img').length") == 0
    assert browser.title == f"{KEY} - Lockgate"
    assert Axe().run(browser)["violations"] == []


def test_a_click_on_a_checkpoint_shows_its_subtasks(shown: Site, fleet: FakeFleet, browser: Any) -> None:
    fleet.acknowledging = False  # so that the leader still knows the subtasks of the newest one when the click comes
    browser.get(f"{shown.leader.dashboard}/jobs/{KEY}#checkpoints")
    newest = "[...document.querySelectorAll('tr')].find(row => row.textContent.includes('retained'))"
    until(browser, f"{newest}?.querySelector('button.link')")
    browser.execute_script(f"{newest}.querySelector('button.link').focus()")
    webdriver.ActionChains(browser).send_keys(Keys.ENTER).perform()
    rows = "[...document.querySelectorAll('table[aria-label^=\"Subtasks of\"] tbody tr')].map(each => each.textContent)"
    until(browser, f"{rows}.length === 2 && {rows}.some(each => each.startsWith('count0'))")
    assert Axe().run(browser)["violations"] == []
    browser.execute_script("document.getElementById('close-parts').click()")
    until(browser, f"!{rows}.length || document.querySelector('section[hidden]')")


_ROWS = (
    "[...document.querySelectorAll('table[aria-label=\"Checkpoints and savepoints\"] tbody tr')]"
    ".map(row => [...row.cells].map(each => each.textContent).join('|'))"
)


def test_aborted_and_subsumed_checkpoints_stay_listed_after_another_part_and_a_reload(
    shown: Site, fleet: FakeFleet, browser: Any
) -> None:
    assert shown.task_manager is not None
    aborted = abort_one(fleet, shown.task_manager, shown.api, f"no space is left {_NAME}")
    shown.api.until(KEY, lambda status: status.checkpoints_completed > 3)
    fleet.acknowledging = False  # what is there now stays on the first page of the list
    signs = f"each.startsWith('{aborted}|') && ['aborted', 'no space'].every(some => each.includes(some))"
    reason = f"{_ROWS}.some(each => {signs})"
    subsumed = f"{_ROWS}.some(each => each.startsWith('1|') && each.includes('subsumed'))"
    retained = f"{_ROWS}.filter(each => each.includes('|retained|')).length === 1"
    browser.get(f"{shown.leader.dashboard}/jobs/{KEY}#checkpoints")
    for _ in range(2):
        for sign in (reason, subsumed, retained, "document.querySelector('rect.bar.marked')"):
            until(browser, sign)
        assert browser.execute_script("return document.querySelectorAll('main img').length") == 0
        assert Axe().run(browser)["violations"] == []
        browser.execute_script("location.hash = 'failovers'")
        until(browser, "document.getElementById('tab-failovers').getAttribute('aria-current') === 'page'")
        browser.execute_script(
            "window.asked = 0; window.fetch = () => { window.asked++; return new Promise(() => {}); }"
        )
        browser.execute_script("location.hash = 'checkpoints'")
        for sign in (reason, subsumed):
            until(browser, sign)
        assert browser.execute_script("return window.asked") > 0, "the page has kept it: nothing is answered"
        browser.refresh()
    assert not faults(browser)


def test_hours_of_checkpoints_push_no_takeover_out_of_an_open_page(shown: Site, browser: Any) -> None:
    """The page's own store of events, with its own code."""
    browser.get(f"{shown.leader.dashboard}/jobs/{KEY}")
    found = browser.execute_async_script(
        """
        const done = arguments[0];
        import('/static/history.js').then(({ EventLog }) => {
          const log = new EventLog();
          const at = (kind, unix_us, attempt = 0) => ({ kind, unix_us, attempt, token: 2 });
          log.add(at('LEADER_GRANTED', 1));
          for (let n = 2; n < 9000; n++) log.add(at('CHECKPOINT_COMPLETED', n, 5));
          const again = log.add(at('LEADER_GRANTED', 1));
          log.add(at('CHECKPOINT_ABORTED', 5000, 5));
          const times = log.all().map(each => each.unix_us);
          done([again, times.length, log.heard.size, times.slice(0, 2), times.at(-1)]);
        });
        """
    )
    assert found == [False, 403, 403, [1, 2], 8999]


def test_a_time_of_another_day_has_its_date(shown: Site, browser: Any) -> None:
    browser.get(f"{shown.leader.dashboard}/jobs/{KEY}")
    found = browser.execute_async_script(
        """
        const done = arguments[0];
        import('/static/format.js').then(({ clock }) => done([clock(Date.now() * 1000), clock(1.7e15)]));
        """
    )
    assert re.fullmatch(r"\d\d:\d\d:\d\d\.\d{3}", found[0])
    assert found[1] == "2023-11-14 22:13:20.000"


def test_no_checkpoint_is_called_retained_after_a_newer_one_took_its_place(shown: Site, browser: Any) -> None:
    """Between two answers of the leader, with the page's own code: 2 of 3 are retained, then two more complete."""
    browser.get(f"{shown.leader.dashboard}/jobs/{KEY}")
    found = browser.execute_async_script(
        """
        const done = arguments[0];
        import('/static/history.js').then(({ CheckpointLog }) => {
          const log = new CheckpointLog(() => new Promise(() => {}));
          const row = (id, retained, kind = 'checkpoint') => ({ id, kind, retained, outcome: 'completed', attempt: 1 });
          const shown = () => log.all().map(each => each.retained);
          const completed = (id) => { log.hear({ kind: 'CHECKPOINT_COMPLETED', checkpoint_id: id }); return shown(); };
          log.merge([row(4, true), row(3, true), row(2, true, 'savepoint'), row(1, false)]);
          const states = [completed(4), completed(5), completed(6)];
          log.merge([row(6, true), row(5, true), row(4, false), row(3, false), row(2, true, 'savepoint')]);
          done([...states, shown()]);
        });
        """
    )
    assert found == [
        [False, True, True, True],  # an event that the answer knew
        [False, True, None, True],
        [False, True, None, None],
        [False, True, False, False, True, True],
    ]


@pytest.fixture
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator that remembers one job that has ended."""
    monkeypatch.setattr(removals, "JobRecords", partial(JobRecords, keep_results=1))


@pytest.mark.usefixtures("forgetful")
def test_an_open_page_shows_the_next_run_under_its_key(shown: Site, browser: Any) -> None:
    browser.get(f"{shown.leader.dashboard}/jobs/{KEY}#failovers")
    title = "document.querySelector('h1').textContent"
    until(browser, f"{title}.includes('running')")
    for key in (KEY, "other"):
        if key != KEY:
            shown.api("Submit", m.SubmitRequest(key, graph()))
        shown.api("Cancel", m.CancelRequest(key))
    until(browser, f"{title}.includes('canceled')")
    poll(lambda: shown.get(f"/api/v1/jobs/{KEY}").status == 404)
    shown.api("Submit", m.SubmitRequest(KEY, graph(name="the second")))
    until(browser, f"{title}.includes('running') && {title}.includes('the second')")
    assert browser.execute_script("return document.getElementById('tab-failovers').getAttribute('aria-current')")
    until(browser, "!document.getElementById('main').textContent.includes('CANCEL')")


def test_a_page_keeps_what_it_has_seen_under_the_leader_before(
    shown: Site, fleet: FakeFleet, browser: Any, new_coordinator: NewCoordinator
) -> None:
    """And lists nothing twice."""
    standby = new_coordinator(web=Dashboard, dashboard="127.0.0.1:0")
    assert shown.task_manager is not None
    aborted = abort_one(fleet, shown.task_manager, shown.api, "no space is left")
    ids = f"{_ROWS}.map(each => each.split('|')[0])"
    browser.get(f"{standby.dashboard}/jobs/{KEY}#checkpoints")
    until(browser, f"{ids}.includes('{aborted}')")
    poll(lambda: shown.get("/api/v1/cluster").json["leaders"])
    crash(shown.leader)
    shown.leader.stop()
    shown.task_manager.running = []
    shown.task_manager.connect(leading(standby).address)
    until(browser, "document.getElementById('main').textContent.includes('token 2')")
    newest = browser.execute_script(f"return {ids}[0]")
    until(browser, f"Number({ids}[0]) > {newest} + 2")
    fleet.acknowledging = False  # pages of the list stay as they are
    until(browser, f"{_ROWS}.filter(each => each.includes('|retained|')).length === 1")
    found = browser.execute_script(f"return {ids}")
    while browser.execute_script("const next = document.getElementById('list-after'); return next && !next.disabled"):
        browser.execute_script("document.getElementById('list-after').click()")
        found += browser.execute_script(f"return {ids}")
    assert str(aborted) in found
    assert len(found) == len(set(found))
    assert found == sorted(found, key=int, reverse=True)
    browser.execute_script("location.hash = 'failovers'")
    leaders = (
        "[...document.querySelectorAll('table[aria-label=Leaders] tbody tr')].map(each => each.cells[0].textContent)"
    )
    until(browser, f"{leaders}.join() === '2,1'")
    browser.get(standby.dashboard)
    until(browser, f"{leaders}.join() === '2,1'")
    assert Axe().run(browser)["violations"] == []


def test_a_savepoint_is_taken_on_the_page_of_checkpoints(shown: Site, browser: Any) -> None:
    browser.get(f"{shown.leader.dashboard}/jobs/{KEY}#checkpoints")
    until(browser, "document.getElementById('take-savepoint')")
    browser.execute_script("document.getElementById('take-savepoint').click()")
    until(browser, "document.querySelector('dialog[open]')")
    browser.execute_script("document.getElementById('confirm').click()")
    until(browser, "document.querySelector('dialog').textContent.includes('Done: savepoint')")


def test_rates_around_a_failover_are_drawn(shown: Site, browser: Any, new_task_manager: NewTaskManager) -> None:
    """As far as the page was open: a restart here, whose job goes on on another task manager."""
    browser.get(f"{shown.leader.dashboard}/jobs/{KEY}#failovers")
    until(browser, "document.getElementById('connection').className === 'live'")
    assert shown.task_manager is not None
    shown.task_manager.die()
    new_task_manager("tm-next").connect(shown.leader.address)
    until(browser, "document.querySelectorAll('svg.course path.spark').length")
    assert Axe().run(browser)["violations"] == []


def test_a_page_that_is_opened_later_draws_the_rates_around_a_failover(
    shown: Site, browser: Any, new_task_manager: NewTaskManager
) -> None:
    """From the leader's history: this page has seen nothing of it."""
    reading = shown.task_manager
    assert reading is not None

    def read(manager: FakeTaskManager, records: int) -> None:
        source = m.SubtaskId(manager.running[0], "source", 0)
        counters = (m.OperatorCounters("numbers", records_out=records),)
        before = len(shown.get(f"/api/v1/jobs/{KEY}/reads").json["unix_ms"])

        def is_kept() -> bool:
            manager.send(m.Heartbeat(1, (m.SubtaskCounters(source, counters),)))
            return len(shown.get(f"/api/v1/jobs/{KEY}/reads").json["unix_ms"]) > before

        poll(is_kept)

    for records in (100, 200, 300):
        read(reading, records)
    reading.die()
    following = new_task_manager("tm-next").connect(shown.leader.address)
    shown.api.until(KEY, lambda status: status.attempt == 2 and status.state is m.JobState.RUNNING)
    for records in (400, 500, 600):
        read(following, records)
    browser.get(f"{shown.leader.dashboard}/jobs/{KEY}#failovers")
    drawn = "document.querySelector('svg.course path.spark')"
    until(browser, f"{drawn} && {drawn}.getAttribute('d').split('L').length > 3")
    left = until(browser, f"{drawn}.getBBox().x")
    edge = browser.execute_script("return document.querySelector('svg.course line.edge').getBBox().x")
    assert left < edge, "it begins before the failover, when the page was not open"


def test_a_click_counts_although_the_page_changes_meanwhile(shown: Site, browser: Any) -> None:
    browser.get(f"{shown.leader.dashboard}/jobs/{KEY}")
    until(browser, "document.getElementById('vertex-source')")
    place = browser.execute_script("return document.getElementById('vertex-source').getBoundingClientRect().toJSON()")
    x, y = int(place["x"] + place["width"] / 2), int(place["y"] + place["height"] / 2)
    press = webdriver.ActionChains(browser)
    press.w3c_actions.pointer_action.move_to_location(x, y)
    press.w3c_actions.pointer_action.pointer_down()
    press.perform()
    browser.execute_script(  # the sign is written anew with each status
        "window.heard = 0; new MutationObserver(() => { window.heard++; })"
        ".observe(document.getElementById('connection'), { childList: true })"
    )
    until(browser, "window.heard > 2")
    leave = webdriver.ActionChains(browser)
    leave.w3c_actions.pointer_action.pointer_up()
    leave.perform()
    until(browser, "document.getElementById('main').textContent.includes('Subtasks of source')")


def test_an_event_is_shown_once_although_its_stream_was_cut(
    shown: Site, browser: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    watches: list[SharedWatch] = []
    run = SharedWatch.run

    def noting(watch: SharedWatch) -> None:
        watches.append(watch)
        run(watch)

    monkeypatch.setattr(SharedWatch, "run", noting)
    rows = "[...document.querySelectorAll('table[aria-label=Events] tbody tr')].map(each => each.textContent)"
    browser.get(f"{shown.leader.dashboard}/jobs/{KEY}#failovers")
    until(browser, f"{rows}.some(each => each.includes('attempt deployed'))")
    for box in list(watches[0]._boxes):
        box.put(end="")
    poll(lambda: len(watches) == 2)
    shown.api("Cancel", m.CancelRequest(KEY))
    until(browser, "document.querySelector('h1').textContent.includes('canceled')")
    found = browser.execute_script(f"return {rows}")
    assert sorted(set(found)) == sorted(found)
    assert browser.execute_script("return document.querySelector('.tile .value').textContent") == "-"


def test_a_job_that_ended_under_another_leader_has_its_totals(
    shown: Site, browser: Any, new_coordinator: NewCoordinator
) -> None:
    before = shown.api.until(KEY, lambda status: status.checkpoints_completed > 1)
    assert before.records_read is not None
    shown.api("Cancel", m.CancelRequest(KEY))
    shown.api.state(KEY, m.JobState.CANCELED)
    shown.leader.stop()
    leader = leading(new_coordinator(web=Dashboard, dashboard="127.0.0.1:0"))
    browser.get(f"{leader.dashboard}/jobs/{KEY}")
    until(browser, "document.querySelector('h1').textContent.includes('canceled')")
    assert f"{before.records_read:,} in all" in _text(browser)


def test_a_login_form_stays_while_someone_types(
    new_coordinator: NewCoordinator, browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lockgate_common.http.callers.is_own_user", lambda _accepted: False)
    file = tmp_path / "tokens.json"
    token = issue(file, SECRET.secret, "reader", ("read",), 0)
    leader = leading(new_coordinator(web=Dashboard, dashboard="127.0.0.1:0", tokens_file=str(file)))
    command = "window.setInterval = (call) => { window.refresh = call; return 0; }"
    browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": command})
    browser.get(leader.dashboard)

    def log_in(text: object) -> None:
        until(browser, "document.getElementById('token')").send_keys(f"{text}{Keys.ENTER}")

    log_in("wrong")
    until(browser, "document.querySelector('form [role=alert]').textContent.includes('needs a token')")
    assert browser.execute_script("return document.getElementById('token').value") == "wrong"
    browser.execute_script("document.getElementById('token').value = ''")
    log_in(token)
    until(browser, "document.getElementById('visitor').textContent.includes('reader')")
    browser.execute_script("window.really = window.fetch; window.fetch = () => Promise.reject(new Error('it is gone'))")
    browser.execute_script("document.querySelector('#visitor button').click()")
    until(browser, "document.getElementById('visitor').textContent.includes('it is gone')")
    browser.execute_script("window.fetch = window.really")
    remove(file, "reader")
    browser.execute_script("window.refresh()")
    until(browser, "document.getElementById('token')").send_keys("half a tok")
    for _ in range(3):
        browser.execute_async_script("Promise.resolve(window.refresh()).then(arguments[0])")
    assert browser.execute_script("return document.getElementById('token').value") == "half a tok"
    assert not [line for line in browser.get_log("browser") if "Uncaught" in line["message"]]


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
