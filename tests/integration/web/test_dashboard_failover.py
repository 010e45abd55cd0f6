"""A page that is open while the leader dies, at a standby's dashboard and at the leader's own."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import quote

import pytest
from lockgate_web.dashboard import Dashboard
from lockgate_web.endpoints import API

from tests.http_client import ask
from tests.integration.coordinator.conftest import NewCoordinator, leading, poll
from tests.integration.coordinator.test_coordinator_failover import crash
from tests.integration.web.conftest import KEY, Events, Site, address_of

pytestmark = pytest.mark.integration

OpenEvents = Callable[..., Events]


def test_a_stream_at_a_standby_follows_to_the_next_leader(
    busy: Site, new_coordinator: NewCoordinator, open_events: OpenEvents
) -> None:
    standby = new_coordinator(web=Dashboard, dashboard="127.0.0.1:0")
    events = open_events(address_of(standby), f"{API}/jobs/{KEY}/events")
    before = events.until("status", lambda value: value["state"] == "RUNNING")
    crash(busy.leader)
    busy.leader.elector.stop(release=True)
    leading(standby)
    granted = events.until("event", lambda value: value["kind"] == "LEADER_GRANTED")
    assert granted["token"] > before["token"]
    after = events.until("status", lambda value: value["token"] == granted["token"])
    assert after["leader"] == standby.address
    overview = ask(address_of(standby), f"{API}/cluster").json
    assert overview["leader"]["dashboard"] == standby.dashboard


def test_the_page_of_a_dead_coordinator_reads_at_another_one(busy: Site, new_coordinator: NewCoordinator) -> None:
    standby = new_coordinator(web=Dashboard, dashboard="127.0.0.1:0")
    poll(lambda: standby.dashboard in busy.get(f"{API}/session").json["dashboards"])
    session = busy.get(f"{API}/session").json
    policy = busy.get("/").headers["content-security-policy"]
    assert f"connect-src 'self' {standby.dashboard};" in policy
    origin = busy.leader.dashboard
    crash(busy.leader)
    busy.leader.stop()
    path = f"{API}/jobs?pass={quote(session['pass'])}"
    answer = ask(address_of(standby), path, headers={"Origin": origin})
    assert (answer.status, answer.headers["access-control-allow-origin"]) == (200, origin)
    for other, shown in ((origin, ""), ("http://127.0.0.1:1", session["pass"]), (origin, "9999999999.00")):
        refused = ask(address_of(standby), f"{API}/jobs?pass={quote(shown)}", headers={"Origin": other})
        assert "access-control-allow-origin" not in refused.headers
    changed = ask(
        address_of(standby),
        f"{API}/jobs/{KEY}/cancel?pass={quote(session['pass'])}",
        "POST",
        {"Origin": origin, "Content-Type": "application/json"},
        b"{}",
    )
    assert changed.status == 403
    assert ask(address_of(standby), f"{API}/jobs/{KEY}").json["state"] not in ("CANCELING", "CANCELED")
