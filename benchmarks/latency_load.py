"""`python -m benchmarks.latency_load RATE SECONDS`: a server whose first client gets RATE lines a second, evenly.

Prints its port, then the start (Unix seconds), then how many lines were sent. A line is `number unix-milliseconds`, the
time being the one at which the line is due. A slow client delays the lines, not the times in them.
"""

from __future__ import annotations

import socket
import sys
import time

_STEP_S = 0.001
_CLIENT_S = 300.0  # Spark may start on a busy machine meanwhile


def main(rate: float, seconds: float) -> None:
    """Serves one client and ends; so do a client that leaves early and one that does not come."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        print(server.getsockname()[1], flush=True)
        server.settimeout(_CLIENT_S)
        try:
            client, _ = server.accept()
        except TimeoutError:
            return
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    start = time.time()
    print(start, flush=True)
    sent, total = 0, int(rate * seconds)
    with client:
        while sent < total:
            due = min(total, int((time.time() - start) * rate) + 1)
            if due > sent:
                lines = (f"{number} {int((start + number / rate) * 1000)}\n" for number in range(sent, due))
                try:
                    client.sendall("".join(lines).encode())
                except OSError:  # the client has gone
                    break
                sent = due
            time.sleep(_STEP_S if rate >= 1 / _STEP_S else max(0.0, start + sent / rate - time.time()))
    print(sent, flush=True)


if __name__ == "__main__":
    main(float(sys.argv[1]), float(sys.argv[2]))
