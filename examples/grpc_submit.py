"""Submits a job graph and follows it with nothing but grpcio and grpcio-reflection: no Lockgate, no generated code.

    lockgate submit examples/wordcount.py --dry-run > graph.json
    python examples/grpc_submit.py HOST:PORT graph.json

What it does step by step is what a client in any language does; see docs/grpc-api.md. The secret is read from
~/.config/lockgate/secret, or from the file that LOCKGATE_SECRET_FILE names.
"""

import os
import sys
import uuid
from pathlib import Path

import grpc
from google.protobuf import json_format
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

SERVICE = "lockgate.v1.JobService"


def secret_metadata():
    """What every call carries: submitting needs the cluster's secret."""
    default = Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser() / "lockgate" / "secret"
    file = Path(os.environ.get("LOCKGATE_SECRET_FILE") or default)
    return (("authorization", f"Bearer {file.read_text().strip()}"),) if file.exists() else ()


CHANNEL_OPTIONS = [
    # With gRPC's own retries a stream that begins while its server stops may never end.
    ("grpc.enable_retries", 0),
    # A frozen leader closes no connection, and a job may have nothing to report for hours: pings tell the two apart.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
]


class Jobs:
    """The job API of one coordinator, as the server itself describes it."""

    def __init__(self, address):
        self.channel = grpc.insecure_channel(address, options=CHANNEL_OPTIONS)
        pool = DescriptorPool(ProtoReflectionDescriptorDatabase(self.channel))
        self.methods = pool.FindServiceByName(SERVICE).methods_by_name

    def request(self, name, fields):
        """A request message, from a dict in protobuf's JSON form."""
        return json_format.ParseDict(fields, GetMessageClass(self.methods[name].input_type)())

    def call(self, name, fields):
        """One answer, or a stream of them where the method streams."""
        method = self.methods[name]
        make = self.channel.unary_stream if method.server_streaming else self.channel.unary_unary
        request = self.request(name, fields)
        answer = GetMessageClass(method.output_type)
        method_of = make(f"/{SERVICE}/{name}", type(request).SerializeToString, answer.FromString)
        return method_of(request, metadata=secret_metadata())


def leader_in(error):
    """Where a standby says that the leader is, or None."""
    return next((value for key, value in error.trailing_metadata() or () if key == "lockgate-leader"), None)


def submit(address, request):
    """Submits at the leader, whichever coordinator was asked. Safe to repeat: the job key makes it one job."""
    jobs = Jobs(address)
    try:
        return jobs, jobs.call("Submit", request)
    except grpc.RpcError as error:
        leader = leader_in(error)
        if leader is None:
            sys.exit(f"{error.code().name}: {error.details()}")
        print(f"{address} is a standby, the leader is {leader}")
        jobs = Jobs(leader)
        return jobs, jobs.call("Submit", request)


def main(address, file):
    """Submits, watches to the end, and exits by the job's result."""
    graph = json_format.Parse(Path(file).read_text(), Jobs(address).request("Submit", {}).graph)
    key = f"by-hand-{uuid.uuid4().hex[:8]}"
    jobs, answer = submit(address, {"job_key": key, "graph": json_format.MessageToDict(graph)})
    print(f"{answer.job_key} created={answer.created} run={answer.run_id}")
    state = ""
    for update in jobs.call("Watch", {"job_key": key}):
        if update.HasField("event"):
            continue
        status = update.status
        state = status.DESCRIPTOR.fields_by_name["state"].enum_type.values_by_number[status.state].name
        print(f"{state} attempt {status.attempt}, {status.checkpoints_completed} checkpoints {status.error}")
    return 0 if state == "FINISHED" else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
