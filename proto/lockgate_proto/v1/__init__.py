"""Generated protobuf and gRPC stubs of `lockgate.v1`. Do not edit; `python proto/generate.py` writes them."""
