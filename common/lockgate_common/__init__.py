"""Parts that every server process needs, whatever its role: addresses, security, storage, fault points."""

from lockgate_common.grpc_engine import leave_engine

leave_engine()  # before any of them imports gRPC
