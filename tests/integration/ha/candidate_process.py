"""A coordinator reduced to its elector and an open port, as a process of its own, to be killed and frozen.

`python candidate_process.py ZOOKEEPER CLUSTER NAME SESSION_MS`: prints one JSON line per thing heard. Commands on
standard input: `gone TOKEN`, `write KEY` (prints how it ended; under the first grant ever held), `release`.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time

from lockgate_ha.elector import Elector
from lockgate_ha.errors import StoreError
from lockgate_ha.grant import LeadershipGrant
from lockgate_ha.records import JobRecords
from lockgate_ha.zookeeper import connector
from lockgate_proto.messages import JobRecord, LeaderRecord


def say(what: str, **more: object) -> None:
    line = json.dumps({"what": what, "unix_us": time.time_ns() // 1_000, **more}) + "\n"
    os.write(sys.stdout.fileno(), line.encode())  # in one piece: several threads say something


class Speaker:
    """The listener: says everything, and keeps its first grant as a zombie would."""

    first: LeadershipGrant | None = None

    def on_granted(self, grant: LeadershipGrant, detected_unix_us: int | None) -> None:
        self.first = self.first or grant
        say("granted", token=grant.token, detected=detected_unix_us)

    def on_suspended(self) -> None:
        say("suspended")

    def on_resumed(self) -> None:
        say("resumed")

    def on_revoked(self, reason: str) -> None:
        say("revoked", reason=reason)

    def on_leader(self, leader: LeaderRecord | None) -> None:
        say("leader", token=leader.token if leader else 0)


def main() -> None:
    hosts, cluster, name, session_ms = sys.argv[1:]
    server = socket.create_server(("127.0.0.1", 0))
    me = LeaderRecord(coordinator_id=name, address=f"127.0.0.1:{server.getsockname()[1]}", pid=os.getpid())
    speaker = Speaker()
    elector = Elector(connector(hosts, int(session_ms)), cluster, me, speaker, on_broken=lambda: say("broken"))
    records = JobRecords(elector.store, cluster, settle_ms=15_000)
    elector.start()
    for line in sys.stdin:
        command, _, argument = line.strip().partition(" ")
        if command == "gone":
            elector.report_leader_gone(int(argument))
        elif command == "write":
            assert speaker.first is not None
            try:
                records.submit(speaker.first, JobRecord(job_key=argument, run_id=name))
                say("written", key=argument)
            except StoreError as error:
                say("refused", key=argument, error=type(error).__name__)
        else:
            elector.stop(release=True)
            return


main()
