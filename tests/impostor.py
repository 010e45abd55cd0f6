"""A gRPC server of somebody who does not know the cluster's secret, at an address to which a process was lured."""

from __future__ import annotations

import queue
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import grpc
from lockgate_proto.rpc import NO_RETRIES, SERVER_OPTIONS


class Impostor(grpc.GenericRpcHandler):
    """Takes every call of any method. Notes what it is shown, and answers with what it was made with.

    relay_to: passes each call's metadata on to that address, and what comes back to the caller.
    """

    def __init__(self, answers: Sequence[bytes] = (), relay_to: str = "") -> None:
        self.metadata_lines: queue.Queue[str] = queue.Queue()  # metadata of each call
        self.taken: queue.Queue[bytes] = queue.Queue()  # messages of all calls
        self.relayed: queue.Queue[str] = queue.Queue()  # how each relayed call ended
        self._answers, self._relay_to = answers, relay_to
        self._pool = ThreadPoolExecutor(8, "impostor")
        self._server = grpc.server(self._pool, options=SERVER_OPTIONS)
        self._server.add_generic_rpc_handlers((self,))
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def __enter__(self) -> Impostor:
        return self

    def __exit__(self, *_error: object) -> None:
        self._server.stop(0).wait()
        self._pool.shutdown()

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        def serve(requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
            metadata = tuple(context.invocation_metadata())
            self.metadata_lines.put(repr(metadata))
            if self._relay_to:
                self._relay(details.method, metadata, context)
            yield from self._answers
            for request in requests:
                self.taken.put(request)

        return grpc.stream_stream_rpc_method_handler(serve)

    def _relay(self, method: str, metadata: tuple[tuple[str, str | bytes], ...], context: grpc.ServicerContext) -> None:
        carried = [(key, value) for key, value in metadata if key == "authorization"]
        with grpc.insecure_channel(self._relay_to, (NO_RETRIES,)) as channel:
            call = channel.stream_stream(method)(iter(()), metadata=carried)
            context.send_initial_metadata(tuple(call.initial_metadata()))
            self.relayed.put(call.code().name)
