"""Lockgate's contract: .proto files, generated stubs, frozen messages and the codec between the two."""
