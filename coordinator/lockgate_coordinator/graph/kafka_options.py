"""Which of librdkafka's options a job may have whose author may not run code."""

from __future__ import annotations

import re
from collections.abc import Mapping

# What takes a number and is about amounts and pauses.
_AMOUNT = re.compile(r"(?!internal\.|offset\.|sasl\.)[a-z.]+\.(ms|bytes|kbytes|messages|ttl|size)")
_HARMLESS = frozenset(
    {
        "acks",
        "allow.auto.create.topics",
        "api.version.request",
        "broker.address.family",
        "check.crcs",
        "client.dns.lookup",
        "client.id",
        "client.rack",
        "compression.codec",
        "compression.level",
        "compression.type",
        "enable.metrics.push",
        "enable.ssl.certificate.verification",
        "group.id",
        "isolation.level",
        "max.in.flight",
        "max.in.flight.requests.per.connection",
        "message.send.max.retries",
        "metadata.recovery.strategy",
        "partitioner",
        "queue.buffering.backpressure.threshold",
        "request.required.acks",
        "retries",
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.password",
        "sasl.username",
        "security.protocol",
        "socket.keepalive.enable",
        "socket.nagle.disable",
        "ssl.ca.pem",
        "ssl.certificate.pem",
        "ssl.cipher.suites",
        "ssl.curves.list",
        "ssl.endpoint.identification.algorithm",
        "ssl.key.password",
        "ssl.key.pem",
        "ssl.sigalgs.list",
    }
)
_MECHANISMS = ("sasl.mechanism", "sasl.mechanisms")
_WITH_PASSWORD = re.compile(r"PLAIN|SCRAM-SHA-\d+", re.IGNORECASE)
_WITHOUT_SASL = re.compile(r"plaintext|ssl", re.IGNORECASE)


def beyond_connecting(options: Mapping[str, str]) -> str:
    """The first option that loads libraries, runs programs, names files or uses what the host is; "" for none.

    What is not known to be harmless counts: librdkafka gets new options. GSSAPI, its default for SASL, runs a shell
    command with texts of the author.
    """
    for name, value in options.items():
        if name not in _HARMLESS and not _AMOUNT.fullmatch(name):
            return name
        if name in _MECHANISMS and not _WITH_PASSWORD.fullmatch(value):
            return name
    has_mechanism = any(name in options for name in _MECHANISMS)
    is_clear = has_mechanism or _WITHOUT_SASL.fullmatch(options.get("security.protocol", "plaintext"))
    return "" if is_clear else "security.protocol"
