"""Who may do what by HTTP: every path with every role, with nothing, with what has ended, as another Unix user."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from lockgate_common.roles import Principal, Role
from lockgate_common.security import Credentials, TlsFiles
from lockgate_common.serving import wrong_tries
from lockgate_common.tls import client_context
from lockgate_common.token_book import issue, remove
from lockgate_coordinator.runtime.access import ACCESS
from lockgate_proto import messages as m
from lockgate_web import pages
from lockgate_web.dashboard import Dashboard
from lockgate_web.endpoints import API, Endpoint, endpoints
from lockgate_web.reads import Reads

from tests import nobody
from tests.certificates import make_certificates
from tests.http_client import ask
from tests.integration.coordinator.conftest import SECRET, NewCaller, NewCoordinator, graph, leading
from tests.integration.web.conftest import KEY, Events, Site, address_of
from tests.jwts import TestingIssuer, ec_key
from tests.quick_credentials import hash_quickly

pytestmark = pytest.mark.integration

TABLE = endpoints(Reads("default", "embedded"))
ROLES = tuple(role.value for role in Role)
UNKNOWN = ("wrong", "ended", "removed", "forwarded", "jwt ended", "jwt of another key", "jwt for others")
JSON = {"Content-Type": "application/json"}
STATIC = Path(pages.__file__).with_name("static")
_AS_NOBODY = """
import http.client, json, sys
port, requests = json.load(sys.stdin)
for method, path in requests:
    connection = http.client.HTTPConnection('127.0.0.1', port)
    connection.request(method, path, '{}' if method == 'POST' else None, {'Content-Type': 'application/json'})
    answer = connection.getresponse()
    print(json.dumps([answer.status, answer.read().decode() if answer.status == 401 else '']))
"""


def _path(endpoint: Endpoint) -> str:
    return endpoint.path.replace("{key}", KEY).replace("{id}", "7")


def _allowed(endpoint: Endpoint, role: str) -> bool:
    return endpoint.role is None or Principal("", frozenset({Role(role)})).may(endpoint.role)


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wrong_tries, "_FIRST_S", 0.0)
    hash_quickly(monkeypatch)


@pytest.fixture(params=["leader", "standby"])
def guarded(
    request: pytest.FixtureRequest, new_coordinator: NewCoordinator, caller: NewCaller, tmp_path: Path
) -> tuple[Site, Callable[[str], str]]:
    """A site of the leader's dashboard or of a standby's, and what a caller shows."""
    file, issuer = tmp_path / "tokens.json", TestingIssuer(tmp_path)
    options = {"web": Dashboard, "dashboard": "127.0.0.1:0", "tokens_file": str(file), "jwt": issuer.settings}
    leader = leading(new_coordinator(**options))
    shower = new_coordinator(**options) if request.param == "standby" else leader
    shown = {role: str(issue(file, SECRET.secret, role, (role,), 0)) for role in ROLES}
    shown |= {"ended": str(issue(file, SECRET.secret, "ended", ("admin",), 1))}
    shown |= {"removed": str(issue(file, SECRET.secret, "removed", ("admin",), 0))}
    remove(file, "removed")
    shown |= {"wrong": "not the secret of it", "secret": SECRET.secret, "jwt ended": issuer.sign("admin", exp=1)}
    shown |= {"jwt of another key": issuer.sign("admin", key=ec_key())}
    shown |= {"jwt for others": issuer.sign("admin", aud="another cluster")}
    return Site(shower, caller(leader), new_coordinator), lambda name: shown[name]


def _headers(shown: Callable[[str], str], name: str) -> dict[str, str]:
    """Of a request by that caller; "": the user of the coordinator."""
    if name in ("", "forwarded"):
        return {"Via": "1.1 proxy"} if name else {}
    return {"Authorization": f"Bearer {shown(name)}"}


def _status(site: Site, endpoint: Endpoint, headers: dict[str, str]) -> int:
    if endpoint.is_stream:
        events = Events(site.address, _path(endpoint), headers)
        events.close()
        return events.answer.status
    sent = headers | (JSON if endpoint.method == "POST" else {})
    body = b'{"parallelism": {"count": 1}}' if endpoint.path.endswith("/rescale") else b"{}"
    return ask(site.address, _path(endpoint), endpoint.method, sent, body).status


def test_every_path_with_every_role(guarded: tuple[Site, Callable[[str], str]]) -> None:
    site, shown = guarded
    for endpoint in TABLE:
        for role in ROLES:
            status = _status(site, endpoint, {"Authorization": f"Bearer {shown(role)}"})
            assert status != 401, (endpoint.path, role)
            assert (status == 403) is not _allowed(endpoint, role), (endpoint.path, role, status)
        for name in ("secret", ""):
            assert _status(site, endpoint, _headers(shown, name)) not in (401, 403), (endpoint.path, name)
    for role in ROLES:
        assert ask(site.address, "/metrics", headers={"Authorization": f"Bearer {shown(role)}"}).status == 200, role


def test_every_path_for_unknown_callers(guarded: tuple[Site, Callable[[str], str]]) -> None:
    site, shown = guarded
    for endpoint in TABLE:
        for name in UNKNOWN:
            free = endpoint.role is None
            assert (_status(site, endpoint, _headers(shown, name)) == 401) is not free, (endpoint.path, name)
    for name in UNKNOWN:
        assert ask(site.address, "/metrics", headers=_headers(shown, name)).status == 401, name


def test_every_page_is_for_everyone_and_without_data(guarded: tuple[Site, Callable[[str], str]]) -> None:
    site, shown = guarded
    site.api("Submit", m.SubmitRequest(KEY, graph(name="of the job")))
    files = {f"/static/{path.name}": path.read_bytes() for path in STATIC.iterdir()}
    assert len(files) > 10
    page = files["/static/index.html"]
    for path, content in (files | {"/": page, f"/jobs/{KEY}": page, "/jobs/none": page}).items():
        for name in (*ROLES, *UNKNOWN, "secret", ""):
            answer = ask(site.address, path, headers=_headers(shown, name))
            assert (answer.status, answer.body) == (200, content), (path, name)
            assert "set-cookie" not in answer.headers, path
        assert ask(site.address, path, "POST", JSON, b"{}").status == 405, path
    for name in (*ROLES, *UNKNOWN, ""):
        assert ask(site.address, "/static/nothing.js", headers=_headers(shown, name)).status == 404, name


@nobody.needs_root
def test_every_path_as_another_user_of_the_host(guarded: tuple[Site, Callable[[str], str]]) -> None:
    site, _ = guarded
    asked = [(endpoint.method, _path(endpoint)) for endpoint in TABLE] + [("GET", "/"), ("GET", "/healthz")]
    port = int(site.address.rpartition(":")[2])
    done = nobody.run(sys.executable, "-c", _AS_NOBODY, input=json.dumps([port, asked]))
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == len(asked), done.stderr
    for endpoint, (status, said) in zip(TABLE, found, strict=False):
        assert (status == 401) is (endpoint.role is not None), endpoint.path
        if status == 401:
            sentence = "this needs a token: send it as the header Authorization: Bearer TOKEN, or log in"
            assert json.loads(said) == {"error": sentence}
    assert [status for status, _ in found[-2:]] == [200, 200]


def test_the_job_api_decides_about_every_role_that_a_path_names() -> None:
    decided = [endpoint for endpoint in TABLE if endpoint.rpc]
    assert len(decided) == len(TABLE) - 4
    for endpoint in decided:
        assert ACCESS[f"/lockgate.v1.JobService/{endpoint.rpc}"] is endpoint.role, endpoint.path


def test_a_login_is_a_cookie_that_can_be_taken_back(guarded: tuple[Site, Callable[[str], str]]) -> None:
    site, shown = guarded
    assert site.get(f"{API}/session").json["owner"] is True
    assert site.post(f"{API}/login", {"token": shown("wrong")}).status == 401
    assert site.post(f"{API}/login", {"token": shown("removed")}).status == 401
    assert site.post(f"{API}/login", {"token": shown("secret")}).status == 401
    answer = site.post(f"{API}/login", {"token": shown("read")})
    assert (answer.status, answer.json["name"], answer.json["roles"]) == (200, "read", ["read"])
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly; SameSite=Strict" in cookie
    assert shown("read") not in cookie
    sent = cookie.partition(";")[0]
    assert site.get(f"{API}/session", Cookie=sent).json["name"] == "read"
    assert site.get(f"{API}/jobs", Cookie=sent).status == 200
    assert site.post(f"{API}/jobs/{KEY}/cancel", Cookie=sent).status == 403
    assert "Max-Age=0" in site.post(f"{API}/logout", Cookie=sent).headers["set-cookie"]


def test_a_page_of_another_site_changes_nothing(guarded: tuple[Site, Callable[[str], str]]) -> None:
    site, _ = guarded
    site.api("Submit", m.SubmitRequest(KEY, graph()))
    path = f"{API}/jobs/{KEY}/cancel"
    for headers in ({"Origin": "http://evil.example"}, {"Origin": "null"}, {"Origin": "http://127.0.0.1:1"}):
        assert ask(site.address, path, "POST", JSON | headers, b"{}").status == 403
    form = {"Content-Type": "application/x-www-form-urlencoded", "Origin": f"http://{site.address}"}
    assert ask(site.address, path, "POST", form, b"a=b").status == 415
    assert ask(site.address, f"{API}/jobs", headers={"Host": "evil.example"}).status == 421
    assert site.get(f"{API}/jobs").json[0]["state"] == "WAITING_FOR_SLOTS"


def test_beyond_loopback_a_token_is_needed_over_tls(new_coordinator: NewCoordinator, tmp_path: Path) -> None:
    tls = make_certificates(tmp_path / "tls")
    file = tmp_path / "tokens.json"
    credentials = Credentials(SECRET.secret, tls)
    leader = leading(
        new_coordinator(
            web=Dashboard,
            credentials=credentials,
            bind="127.0.0.1:0",
            dashboard="0.0.0.0:0",
            tokens_file=str(file),
        )
    )
    assert leader.dashboard.startswith("https://127.0.0.1:")
    context = client_context(TlsFiles(authority=tls.authority))
    address = address_of(leader)
    assert ask(address, f"{API}/jobs", context=context).status == 401
    token = issue(file, SECRET.secret, "reader", ("read",), 0)
    shown = {"Authorization": f"Bearer {token}"}
    assert ask(address, f"{API}/jobs", headers=shown, context=context).json == []
    body = json.dumps({"token": str(token)}).encode()
    cookie = ask(address, f"{API}/login", "POST", JSON, body, context).headers["set-cookie"]
    assert cookie.startswith("__Host-lockgate-")
    assert cookie.endswith("; Secure")
    sent = {"Cookie": cookie.partition(";")[0]}
    assert ask(address, f"{API}/jobs", headers=sent, context=context).json == []


def test_beyond_loopback_nothing_is_opened_without_tls(new_coordinator: NewCoordinator) -> None:
    with pytest.raises(ValueError, match=r"reachable from other machines; set tls\.certificate"):
        new_coordinator(web=Dashboard, dashboard="0.0.0.0:0")
