"""Who may read the page of metrics at its own port, over real sockets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from lockgate_common import token_book
from lockgate_common.metrics.page import MetricsPage
from lockgate_common.metrics.server import MetricsServer, metrics_server
from lockgate_common.security import Credentials, SecurityError
from lockgate_common.settings import SettingsError, check_page
from lockgate_common.token import parse_token

from tests.http_client import ask
from tests.prometheus import Page
from tests.quick_credentials import note_waits

SECRET = "a secret of sixteen characters"
CREDENTIALS = Credentials(secret=SECRET)


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    return tmp_path / "tokens.json"


@pytest.fixture
def server(tokens: Path) -> Iterator[MetricsServer]:
    found = MetricsServer(MetricsPage(()), "127.0.0.1:0", CREDENTIALS, "coordinator.metrics", str(tokens))
    found.start()
    yield found
    found.stop()


@pytest.fixture
def stranger(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests of this process count as another user's."""
    monkeypatch.setattr("lockgate_common.http.callers.is_own_user", lambda _accepted: False)


def _bearer(text: object) -> dict[str, str]:
    return {"Authorization": f"Bearer {text}"}


def test_the_own_user_needs_nothing_on_loopback(server: MetricsServer) -> None:
    answer = ask(server.address, "/metrics")
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/plain; version=")
    assert Page(answer.body).get("lockgate_metrics_incomplete") == 0


@pytest.mark.usefixtures("stranger")
@pytest.mark.parametrize("role", ["read", "submit", "code", "operate", "admin"])
def test_every_role_may_read(server: MetricsServer, tokens: Path, role: str) -> None:
    token = token_book.issue(tokens, SECRET, "somebody", (role,), 0)
    assert ask(server.address, "/metrics", headers=_bearer(token)).status == 200
    assert ask(server.address, "/metrics", headers=_bearer(SECRET)).status == 200


@pytest.mark.usefixtures("stranger")
def test_no_one_else_may(server: MetricsServer, tokens: Path) -> None:
    token = token_book.issue(tokens, SECRET, "somebody", ("read",), 0)
    wrong = replace(token, random=token.random[::-1])
    ended = token_book.issue(tokens, SECRET, "yesterday", ("read",), 1)
    for shown in ({}, _bearer(wrong), _bearer(ended), _bearer("another secret of sixteen")):
        assert ask(server.address, "/metrics", headers=shown).status == 401
    token_book.remove(tokens, "somebody")
    assert ask(server.address, "/metrics", headers=_bearer(token)).status == 401


@pytest.mark.usefixtures("stranger")
def test_a_jwt_is_refused_in_a_sentence(server: MetricsServer) -> None:
    answer = ask(server.address, "/metrics", headers=_bearer("eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJhIn0.c2lnbmF0dXJl"))
    assert answer.status == 401
    assert "JWT" in answer.error


def test_there_is_nothing_else(server: MetricsServer) -> None:
    assert ask(server.address, "/").status == 404
    json = {"Content-Type": "application/json"}
    assert ask(server.address, "/metrics", "POST", headers=json, body=b"{}").status == 405
    head = ask(server.address, "/metrics", "HEAD")
    assert (head.status, head.body) == (200, b"")


def test_beyond_loopback_it_needs_tls() -> None:
    with pytest.raises(SecurityError, match=r"tls\.certificate"):
        MetricsServer(MetricsPage(()), "0.0.0.0:0", CREDENTIALS, "taskmanager.metrics", "")


@pytest.mark.usefixtures("stranger")
def test_wrong_credentials_wait_longer_each_time_and_missing_ones_do_not(
    server: MetricsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited = note_waits(monkeypatch)
    for shown in ("not the secret", "lockgate.ab.cd", str(parse_token(f"lockgate.ab.{'0' * 64}.cd"))):
        assert ask(server.address, "/metrics", headers=_bearer(shown)).status == 401
        assert ask(server.address, "/metrics").status == 401
    assert [seconds for seconds in waited if seconds >= 0.3] == [0.3, 0.6, 1.2]


@pytest.mark.parametrize("setting", ["", "off"])
def test_off_means_no_server(setting: str) -> None:
    check_page("metrics", setting)
    assert metrics_server(MetricsPage(()), setting, CREDENTIALS, "taskmanager", "") is None


@pytest.mark.parametrize("setting", ["on", "9100", "host:port", "host:70000"])
def test_a_wrong_address_is_named(setting: str) -> None:
    with pytest.raises(SettingsError, match="is not host:port; give host:port, or off"):
        check_page("metrics", setting)
