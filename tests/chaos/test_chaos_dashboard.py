"""A page that is open in a browser when the process that serves it, the leader, is killed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from lockgate_proto.messages import LeaderFailover

from tests.chaos.testing_cluster import TestingCluster
from tests.chromium import until
from tests.http_client import ask

pytestmark = [pytest.mark.chaos, pytest.mark.rotating]

PICTURES = "LOCKGATE_TEST_PICTURES"
"""A folder for pictures of the pages, as the docs show them; none are taken without it."""
IS_FULL = {"checkpoints": "document.querySelectorAll('table[aria-label^=Checkpoints] tbody tr').length > 7"}
"""When a part has enough to show in a picture."""
MOST_HIGH = 1000
"""Pixels of a picture."""
PARTS = {
    "": ("vertex-",),
    "checkpoints": ("Checkpoints and savepoints", "subsumed"),
    "failovers": ("leadership granted", "Leaders of the cluster"),
    "actions": ("Rescale",),
}
"""Of a job's page, each with texts that it has at the end."""


def test_an_open_page_follows_to_the_new_leader_without_a_reload(testing: TestingCluster, browser: Any) -> None:
    with testing.ledger(failover=LeaderFailover.LEADER_FAILOVER_REATTACH) as job:
        job.wait_checkpoints(2)
        leader = _cluster(testing)["leader"]
        browser.get(f"{leader['dashboard']}/jobs/{job.key}")
        until(browser, f"document.getElementById('main').textContent.includes('token {leader['token']}')")
        browser.execute_script("window.isTheSamePage = true")
        # where it could go is known to it: it has tried the way
        until(browser, "performance.getEntriesByType('resource').some(each => each.name.includes('/healthz?'))")
        testing.kill_leader()
        until(browser, f"document.getElementById('main').textContent.includes('token {leader['token'] + 1}')")
        until(browser, "document.getElementById('connection').className === 'live'")
        assert browser.execute_script("return window.isTheSamePage")
        job.wait_checkpoints(4)
        _show(browser, job.key)
        after = testing.client.cluster().leader
        assert after is not None
        browser.get(after.dashboard)
        until(browser, f"document.getElementById('job-{job.key}')")
        _keep(browser, "overview", "document.querySelector('table[aria-label=Jobs] polyline').points.length > 20")
        job.check_exact()


def _cluster(testing: TestingCluster) -> Any:
    return ask(testing.cluster.dashboard.partition("//")[2], "/api/v1/cluster").json


def _show(browser: Any, key: str) -> None:
    """Opens each part of the job's page, and takes a picture of it if they are wanted."""
    for part, signs in PARTS.items():
        browser.execute_script(f"location.hash = '{part}'")
        for sign in signs:
            until(browser, f"document.getElementById('main').innerHTML.includes('{sign}')")
        _keep(browser, part or "job", IS_FULL.get(part, "true"))
    assert key in browser.execute_script("return document.body.textContent")


def _keep(browser: Any, name: str, is_full: str) -> None:
    """A picture of what is shown, up to MOST_HIGH, if pictures are wanted. is_full: when there is enough to see."""
    folder = os.environ.get(PICTURES)
    if not folder:
        return
    until(browser, is_full)
    Path(folder).mkdir(parents=True, exist_ok=True)
    width, high = browser.execute_script("return [innerWidth, Math.ceil(main.getBoundingClientRect().bottom)]")
    size = {"width": width, "height": min(high, MOST_HIGH), "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    assert browser.save_screenshot(str(Path(folder) / f"{name}.png"))
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
