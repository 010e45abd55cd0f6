"""What changes a job. Functions of a request that block and raise ClientError."""

from __future__ import annotations

from lockgate.json_shapes import Json, checkpoint_json
from lockgate_web.asked import Asked


def savepoint(asked: Asked) -> Json | None:
    """Returns when it is complete."""
    body = asked.body
    return checkpoint_json(asked.held.client.savepoint(asked.key, body.timeout_ms, request_id=body.request_id))


def stop(asked: Asked) -> Json | None:
    """Returns the savepoint that the job ends with."""
    taken = asked.held.client.stop(asked.key, drain=asked.body.drain, timeout_ms=asked.body.timeout_ms)
    return checkpoint_json(taken)


def cancel(asked: Asked) -> Json:
    """The state after that."""
    return {"key": asked.key, "state": asked.held.client.cancel(asked.key).name}


def release(asked: Asked) -> Json:
    """The state after that."""
    return {"key": asked.key, "state": asked.held.client.release(asked.key).name}


def rescale(asked: Asked) -> Json:
    """Returns when the change is durable; the job then restarts with it."""
    answer = asked.held.client.rescale(asked.key, asked.body.parallelism, asked.body.timeout_ms)
    wanted = {vertex.vertex_id: vertex.parallelism for vertex in answer.parallelism}
    return {"key": asked.key, "parallelism": wanted, "after_attempt": answer.after_attempt}


def dispose(asked: Asked) -> Json:
    """Deletes a savepoint permanently."""
    number = asked.id("savepoint")
    asked.held.client.dispose_savepoint(asked.key, number)
    return {"key": asked.key, "disposed": number}
