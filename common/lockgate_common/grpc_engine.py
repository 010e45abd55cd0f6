"""gRPC without the threads of its event engine.

With the engine, a message that arrives is read on one thread, parsed on another, and handed over to the one that waits
for it; without, the one that waits reads and parses it. On a machine whose cores are busy, each further thread waits
for a core first.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping

VARIABLE = "GRPC_EXPERIMENTS"
_WITHOUT_ENGINE = "-event_engine_client,-event_engine_listener"


def leave_engine(environment: MutableMapping[str, str] = os.environ) -> None:
    """Has gRPC work without its engine, unless the user has chosen. gRPC reads this once, when it is imported."""
    environment.setdefault(VARIABLE, _WITHOUT_ENGINE)
