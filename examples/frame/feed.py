"""A server of lines, as a socket source reads them."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterable, Iterator
from typing import Self

_LINES_A_SECOND = 200


class Feed:
    """Sends lines to whoever connects, at a steady pace, each once. Afterwards connections end at once."""

    def __init__(self) -> None:
        self.port = 9999
        self.connections = 0
        self.sent: list[str] = []
        self._lines: Iterator[str] = iter(())
        self._has_lines, self._is_over, self._is_left = threading.Event(), threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._serve, name="feed", daemon=True)

    def __enter__(self) -> Self:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for event in (self._is_over, self._is_left, self._has_lines):
            event.set()
        self._thread.join()

    def send(self, lines: Iterable[str]) -> None:
        """Sends these, over the next connections. Called once."""
        self._lines = iter(lines)
        self._has_lines.set()

    def end(self) -> None:
        """Sends no more."""
        self._is_over.set()

    def _serve(self) -> None:
        self._has_lines.wait()
        self._server.settimeout(0.05)
        with self._server:
            while not self._is_left.is_set():
                try:
                    peer, _ = self._server.accept()
                except TimeoutError:
                    continue
                self.connections += 1
                with peer:
                    self._send_to(peer)

    def _send_to(self, peer: socket.socket) -> None:
        while not self._is_over.wait(1 / _LINES_A_SECOND):
            line = next(self._lines, None)
            if line is None:
                return
            self.sent.append(line)
            try:
                peer.sendall(f"{line}\n".encode())
            except OSError:
                return  # the reader has died: the next one connects
