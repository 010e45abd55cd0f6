"""`python -m benchmarks.dashboard`: the leader is killed under an open page of a job, in Chromium.

A cluster of two coordinators with ZooKeeper and played task managers, no Spark. Measures from SIGKILL until the page
shows a status by the new leader, without a reload: of a page of the leader's own dashboard, which dies with it, and of
one of the standby's. Needs `chromium` and `chromium-driver`.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lockgate_devtools.cluster.cluster import LocalCluster
from lockgate_devtools.cluster.options import ClusterOptions
from lockgate_devtools.cluster.work_folder import WorkFolder
from lockgate_proto import messages as m

from benchmarks.common import Measurement, Row, at_most, parser, run, say
from benchmarks.control_plane import graph_of, played
from lockgate.client import Client
from lockgate.errors import UserError

_KEY = "wide"
_SLOTS = 4
_GOAL_MS = 2_000
_LIMIT_S = 120.0
_OPTIONS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")
_NOTE_TOKENS = """
window.seen = {};
const main = document.getElementById("main");
const look = () => {
  for (const each of main.querySelectorAll(".tile .value")) {
    const found = /^token (\\d+)$/.exec(each.textContent);
    if (found) window.seen[found[1]] ??= Date.now();
  }
};
new MutationObserver(look).observe(main, { childList: true, subtree: true, characterData: true });
look();
"""
"""Into window.seen: when each leader's first status was shown, in ms since 1970."""
_IS_LIVE = "document.getElementById('connection')?.className === 'live'"
_HAS_TRIED_OTHERS = "performance.getEntriesByType('resource').some(each => each.name.includes('/healthz?'))"


def measure(arguments: argparse.Namespace) -> Measurement:
    """Both kinds of page on one cluster."""
    options = ClusterOptions(taskmanagers=0)
    with (
        WorkFolder("lockgate-dashboard-", say) as work,
        LocalCluster(work.path / "cluster", options) as cluster,
        played(cluster, 1, _SLOTS, 1),
        Client(cluster.coordinators, credentials=cluster.credentials(), patience_ms=120_000) as client,
        _chromium() as browser,
    ):
        client.submit(_KEY, graph_of(_SLOTS))
        _until(lambda: client.job(_KEY).state is m.JobState.RUNNING, "the job to run")
        own = [_killed(cluster, client, browser, is_own=True) for _ in range(arguments.times)]
        other = [_killed(cluster, client, browser, is_own=False) for _ in range(arguments.times)]
    return Measurement(
        (*_rows("the killed leader's own page", own), *_rows("the standby's page", other)),
        {"own_ms": own, "standby_ms": other},
    )


def _rows(name: str, times: list[int]) -> tuple[Row, Row]:
    return (
        Row(f"{name}, median", f"{statistics.median(times):,.0f} ms"),
        at_most(f"{name}, worst of {len(times)}", max(times), _GOAL_MS, "ms"),
    )


def _killed(cluster: LocalCluster, client: Client, browser: Any, *, is_own: bool) -> int:
    """Milliseconds. The killed coordinator is back afterwards."""
    number = cluster.leader_number()
    if number is None:
        raise UserError("there is no leader")
    cluster.wait_ready("coordinator", 1 - number)
    _until(lambda: len(client.cluster().coordinators) == 2, "the standby")
    seen = client.cluster()
    assert seen.leader is not None
    token = seen.leader.token
    place = next(found.dashboard for found in seen.coordinators if found.leader is is_own)
    browser.get(f"{place}/jobs/{_KEY}")
    _until(lambda: browser.execute_script(f"return {_IS_LIVE} && {_HAS_TRIED_OTHERS}"), "the page")
    browser.execute_script(_NOTE_TOKENS)
    _until(lambda: browser.execute_script(f"return window.seen[{token}]"), "the leader's status")
    killed_ms = time.time_ns() // 1_000_000
    pid = cluster.kill("coordinator", number)
    later = f"Object.entries(window.seen).filter(([token]) => Number(token) > {token}).map(([, ms]) => ms)[0]"
    shown_ms = _until(lambda: browser.execute_script(f"return {later}"), "a status by the next leader")
    cluster.wait_ready("coordinator", number, other_than=pid)
    took_ms = int(shown_ms) - killed_ms
    say(f"page of the {'killed leader' if is_own else 'standby'}: {took_ms:,} ms")
    return took_ms


def _until(value: Any, what: str) -> Any:
    """The value once it is true."""
    deadline = time.monotonic() + _LIMIT_S
    while not (found := value()):
        if time.monotonic() > deadline:
            raise UserError(f"waited {_LIMIT_S:g} s for {what}")
        time.sleep(0.05)
    return found


@contextmanager
def _chromium() -> Iterator[Any]:
    from selenium import webdriver

    programs = shutil.which("chromium"), shutil.which("chromedriver")
    if None in programs:
        raise UserError("there is no Chromium: install Debian's packages chromium and chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = str(programs[0])
    for option in _OPTIONS:
        options.add_argument(option)
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(str(programs[1])))
    try:
        yield browser
    finally:
        browser.quit()


def main() -> int:
    """Command line."""
    options = parser("dashboard", "From SIGKILL of the leader until an open page shows numbers by the next one.")
    options.add_argument("--times", type=int, default=10, help="kills for each kind of page")
    return run(options.parse_args(), measure)


if __name__ == "__main__":
    sys.exit(main())
