"""Pages of one job share a watch, and the text of each status."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import AsyncGenerator, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, cast

import pytest
from lockgate_proto import messages as m
from lockgate_web import shared_watch
from lockgate_web.asked import Asked
from lockgate_web.clients import HeldClient
from lockgate_web.shared_watch import sent
from lockgate_web.streams import job_events

from lockgate.client import Client, ClusterUnreachable

LIMIT_S = 30
EVENT = m.JobEvent(m.JobEventKind.LEADER_GRANTED, unix_us=1, token=1)


class _Watch:
    """What a test puts into it."""

    def __init__(self) -> None:
        self.updates: queue.Queue[Any] = queue.Queue()
        self.ended = self.is_closed = False

    def poll(self, timeout_ms: float) -> Any:
        try:
            update = self.updates.get(timeout=timeout_ms / 1_000)
        except queue.Empty:
            return None
        if isinstance(update, Exception):
            raise update
        self.ended = isinstance(update, m.JobStatus) and update.state is m.JobState.FINISHED
        return update

    def close(self) -> None:
        self.is_closed = True


class _Cluster:
    def __init__(self) -> None:
        self.watches: list[_Watch] = []

    def watch(self, _key: str, _on_lost: Any) -> _Watch:
        self.watches.append(_Watch())
        return self.watches[-1]


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[m.JobStatus]:
    """Statuses of which the JSON was made."""
    found: list[m.JobStatus] = []
    monkeypatch.setattr(shared_watch, "STATUS_EVERY_S", 0.0)
    monkeypatch.setattr(shared_watch, "live_json", lambda status: found.append(status) or status.attempt)
    return found


def _status(attempt: int, state: m.JobState = m.JobState.RUNNING) -> m.JobStatus:
    return m.JobStatus("job", state=state, attempt=attempt)


async def _until(page: AsyncGenerator[str], *parts: str) -> str:
    """What the page is sent until each part was there."""
    text = ""
    async with asyncio.timeout(LIMIT_S):
        async for chunk in page:
            text += chunk
            if all(part in text for part in parts):
                return text
    raise AssertionError(text)


def _asked(cluster: _Cluster) -> Asked:
    held = HeldClient(cast(Client, cluster))
    return cast(Asked, SimpleNamespace(held=held, key="job"))


def test_a_status_is_made_once_for_all_pages(made: list[m.JobStatus], threads: ThreadPoolExecutor) -> None:
    async def pages() -> None:
        cluster = _Cluster()
        asked = _asked(cluster)
        first, late = job_events(asked, threads), job_events(asked, threads)
        opened = asyncio.ensure_future(_until(first, "event: event", "data: 1"))
        await _poll(lambda: cluster.watches)
        (watch,) = cluster.watches
        watch.updates.put(EVENT)
        watch.updates.put(_status(1))
        await opened
        assert "LEADER_GRANTED" in await _until(late, "event: event", "data: 1")
        watch.updates.put(_status(2))
        await asyncio.gather(_until(first, "data: 2"), _until(late, "data: 2"))
        assert made == [_status(1), _status(2)]
        assert len(cluster.watches) == 1
        await first.aclose()
        watch.updates.put(_status(3))
        await _until(late, "data: 3")
        await late.aclose()
        assert not asked.held.watches
        await _poll(lambda: watch.is_closed)

    asyncio.run(pages())


def test_every_page_gets_the_end_and_a_later_page_a_watch_of_its_own(
    made: list[m.JobStatus], threads: ThreadPoolExecutor
) -> None:
    async def pages() -> None:
        cluster = _Cluster()
        asked = _asked(cluster)
        both = [job_events(asked, threads) for _ in range(2)]
        ends = [asyncio.ensure_future(_until(page, "data: 4", "event: end")) for page in both]
        await _poll(lambda: cluster.watches)
        cluster.watches[0].updates.put(_status(4, m.JobState.FINISHED))
        for text in await asyncio.gather(*ends):
            assert text.endswith(sent("status", 4) + sent("end", {}))
        assert len(made) == 1
        later = job_events(asked, threads)
        failed = asyncio.ensure_future(_until(later, "event: failure"))
        await _poll(lambda: len(cluster.watches) == 2)
        cluster.watches[1].updates.put(ClusterUnreachable("there is no leader"))
        assert "there is no leader" in await failed
        for page in (*both, later):
            await page.aclose()
        assert not asked.held.watches

    asyncio.run(pages())


async def _poll(holds: Any) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not holds():
            await asyncio.sleep(0.005)
