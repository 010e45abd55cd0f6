"""The files of the pages.

They contain no data of a cluster, so everyone may have them: data comes from the JSON API.
"""

from __future__ import annotations

import base64
import hashlib
import mimetypes
from collections.abc import Callable, Iterable
from pathlib import Path

from lockgate_common.http.refusal import HttpRefusal
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

_FOLDER = Path(__file__).with_name("static")
_PAGES = {"/": "index.html", "/jobs/{key}": "index.html"}


def policy(page: bytes, others: Iterable[str]) -> str:
    """What a page may run, load and ask: its inline script, its own origin, and the dashboards of the cluster's other
    coordinators.
    """
    inline = page.partition(b"<script>")[2].partition(b"</script>")[0]
    digest = base64.b64encode(hashlib.sha256(inline).digest()).decode()
    connect = " ".join(("'self'", *others))
    return (
        f"default-src 'none'; script-src 'self' 'sha256-{digest}'; style-src 'self'; img-src 'self' data:; "
        f"connect-src {connect}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


class Pages:
    """others: the URLs of the other dashboards."""

    def __init__(self, others: Callable[[], tuple[str, ...]]) -> None:
        self._others = others
        self._files = {path.name: path.read_bytes() for path in _FOLDER.iterdir() if path.is_file()}

    def routes(self) -> list[Route]:
        """Of pages and their parts."""
        pages = [Route(path, self._page, methods=["GET"]) for path in _PAGES]
        return [*pages, Route("/static/{name}", self._part, methods=["GET"])]

    async def _page(self, _request: Request) -> Response:
        headers = {"Content-Security-Policy": policy(self._files["index.html"], self._others())}
        return self._file("index.html", headers)

    async def _part(self, request: Request) -> Response:
        return self._file(request.path_params["name"], {})

    def _file(self, name: str, headers: dict[str, str]) -> Response:
        content = self._files.get(name)
        if content is None:
            raise HttpRefusal(404, "there is no such file")
        kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
        return Response(content, media_type="text/javascript" if name.endswith(".js") else kind, headers=headers)
