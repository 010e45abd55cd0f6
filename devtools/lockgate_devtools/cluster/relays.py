"""A TCP relay in front of each server of a cluster, so that links between processes of one machine can be cut.

On a cut link nothing arrives, not even the end of a connection, and no new connection is made. As with packets that
TCP sends again, what was written meanwhile arrives late, once the link is whole. No privilege is needed.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from lockgate_common.ports import is_free

_HOST = "127.0.0.1"
_PIECE_BYTES = 1 << 16
_LOOK_S = 0.05  # how soon a server that has started can be reached
_LOOK_SOON_S, _SOON_S = 0.005, 0.3  # after the end of a connection: its server may be dying

Who = Callable[[Collection[tuple[int, int]]], Mapping[tuple[int, int], str]]
"""Names the processes that have connected from the first port to the second of each pair; "" for one of no interest."""


@dataclass(eq=False)
class _Connection:
    """client: None as long as nothing depends on who it is; finding out costs milliseconds."""

    ports: tuple[int, int]
    server: str
    client: str | None = None
    is_joined: bool = False


class Relays:
    """The relays of a cluster, on a thread of their own. who: called from several threads.

    A relay listens only while its server does: a process that has died must refuse connections, as without a relay.
    """

    def __init__(self, who: Who) -> None:
        self._who = who
        self._servers: dict[str, tuple[int, int]] = {}  # port of the relay, port of the server
        self._listeners: dict[str, asyncio.Server] = {}
        self._cut: set[tuple[str, str]] = set()  # sender, receiver
        self._connections: dict[asyncio.Task[None], _Connection] = {}
        self._soon_until_s = 0.0
        self._loop = asyncio.new_event_loop()
        self._changed, self._broken = asyncio.Event(), asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="relays", daemon=True)
        self._thread.start()

    def add(self, name: str, port: int, server_port: int) -> None:
        """Relays connections to `port` to the server of this name at `server_port`, both of the loopback interface."""
        self._servers[name] = (port, server_port)

    def cut(self, links: Iterable[tuple[str, str]]) -> None:
        """Nothing that the first process of each pair sends arrives at the second any more. Idempotent."""
        self._identify(list(self._connections.values()))  # at once, so that the links that stay whole do not wait
        self._do(self._set(self._cut | set(links)))

    def heal(self) -> None:
        """Every link is whole again. Idempotent."""
        self._do(self._set(set()))

    def servers_of(self, client: str) -> set[str]:
        """Those to which the process has a connection."""
        found = list(self._connections.values())
        self._identify(found)
        return {connection.server for connection in found if connection.client == client and connection.is_joined}

    def close(self) -> None:
        """Ends every connection and the thread. Idempotent."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        watch = self._loop.create_task(self._watch())
        self._loop.run_forever()
        rest = [watch, *self._connections]
        for task in rest:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*rest, return_exceptions=True))
        for listener in self._listeners.values():
            listener.close()
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    def _do(self, change: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(change, self._loop).result()

    async def _set(self, cut: set[tuple[str, str]]) -> None:
        self._cut = cut
        self._changed.set()
        self._changed = asyncio.Event()

    def _identify(self, connections: Iterable[_Connection]) -> None:
        unknown = [connection for connection in connections if connection.client is None]
        names = self._who([connection.ports for connection in unknown]) if unknown else {}
        for connection in unknown:
            connection.client = names[connection.ports]

    async def _watch(self) -> None:
        while True:
            await self._follow_servers()
            is_soon = self._loop.time() < self._soon_until_s
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_SOON_S if is_soon else _LOOK_S):
                    await self._broken.wait()
            self._broken.clear()

    async def _follow_servers(self) -> None:
        """Listens for those servers that listen, and for no other."""
        for name, (port, server_port) in list(self._servers.items()):
            listener, is_alive = self._listeners.get(name), not is_free(_HOST, server_port)
            if listener is not None and not is_alive:
                listener.close()
                del self._listeners[name]
            elif listener is None and is_alive:
                with contextlib.suppress(OSError):  # the port may be taken for a moment; tried again at the next look
                    accept = self._accept(name, server_port)
                    self._listeners[name] = await asyncio.start_server(accept, _HOST, port)

    def _accept(self, server: str, server_port: int) -> Callable[..., Coroutine[Any, Any, None]]:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            ports = (writer.get_extra_info("peername")[1], writer.get_extra_info("sockname")[1])
            connection = self._connections[task] = _Connection(ports, server)
            try:
                await self._join(connection, server_port, reader, writer)
            except (OSError, asyncio.CancelledError):
                pass  # one of the two has closed it, or the relay ends
            finally:
                del self._connections[task]
                writer.transport.abort()

        return accept

    async def _join(
        self, connection: _Connection, server_port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Passes on what the two send until both have ended the connection."""
        await self._until_whole(connection, to_server=True)
        await self._until_whole(connection, to_server=False)
        answers, requests = await asyncio.open_connection(_HOST, server_port)
        connection.is_joined = True
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pass_on(connection, reader, requests, to_server=True))
                both.create_task(self._pass_on(connection, answers, writer, to_server=False))
        except* OSError:
            pass
        finally:
            requests.transport.abort()
            await self._see_whether_it_died()

    async def _pass_on(
        self, connection: _Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, to_server: bool
    ) -> None:
        data = b"-"
        while data:
            await self._until_whole(connection, to_server=to_server)
            data = await reader.read(_PIECE_BYTES)
            await self._until_whole(connection, to_server=to_server)
            writer.write(data)
            await writer.drain()
        if not to_server:
            await self._see_whether_it_died()
        writer.write_eof()

    async def _until_whole(self, connection: _Connection, *, to_server: bool) -> None:
        while any(connection.server in link for link in self._cut):
            if connection.client is None:
                await asyncio.to_thread(self._identify, [connection])
            assert connection.client is not None
            link = (connection.client, connection.server)
            if (link if to_server else link[::-1]) not in self._cut:
                return
            await self._changed.wait()

    async def _see_whether_it_died(self) -> None:
        """Before the client learns that a connection has ended: it may try to connect again at once."""
        self._soon_until_s = self._loop.time() + _SOON_S
        await self._follow_servers()
        self._broken.set()
