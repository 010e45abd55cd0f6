"""Which graphs bring code of their own."""

from __future__ import annotations

import pytest
from lockgate_coordinator.graph.batchwise import spans_rows
from lockgate_coordinator.graph.code import brings_code
from lockgate_proto import messages as m


def graph(kind: object) -> m.JobGraph:
    return m.JobGraph(vertices=(m.Vertex("v", operators=(m.Operator("o", kind=kind),)),))


@pytest.mark.parametrize(
    "kind",
    [
        m.FileSource(path="/data"),
        m.SqlTransform("SELECT lower(value) AS word FROM input WHERE word != ''"),
        m.SqlTransform("  (with a as (select 1) select * from a join input using (k))"),
        m.KeyedAggregate(("k",), (m.Aggregate("n", m.AggregateFunction.COUNT),)),
        m.ConsoleSink(),
        m.SqlTransform("SELECT transform(list, x -> x + 1) FROM input"),
        m.SqlTransform("SELECT * FROM a JOIN b USING (k)"),
        m.KafkaSource(
            "h:1",
            ("t",),
            options={
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.username": "shop",
                "sasl.password": "${KAFKA_PASSWORD}",
                "ssl.ca.pem": "-----BEGIN CERTIFICATE-----",
                "fetch.wait.max.ms": "10",
            },
        ),
        m.KafkaSink("h:1", "t", value="v", options={"message.max.bytes": "2000", "transaction.timeout.ms": "900000"}),
    ],
)
def test_sql_and_what_is_built_in_is_no_code(kind: object) -> None:
    assert brings_code(graph(kind)) == ""


@pytest.mark.parametrize(
    "kind",
    [
        m.PythonTransform(b"pickle"),
        m.KeyedProcess(("k",), b"pickle"),
        m.PythonSource(b"pickle"),
        m.PythonSink(b"pickle"),
        m.ForeachBatchSink(b"pickle"),
        m.SqlTransform("SELECT Reflect('java.lang.System', 'exit', 1) FROM input"),
        m.SqlTransform("SELECT `java_method`('a', 'b') FROM input"),
        m.SqlTransform("SELECT IDENTIFIER('ref' || 'lect')('a', 'b') FROM input"),
        m.SqlTransform("SELECT TRANSFORM(value)\nUSING/**/'sh' FROM input"),
        m.SqlTransform("FROM input MAP value USING 'sh'"),
        m.SqlTransform("CREATE FUNCTION f AS 'x' USING JAR 'y'"),
        m.SqlTransform("ADD JAR 'x'"),
        *(
            m.KafkaSource("h:1", ("t",), options=options)
            for options in (
                {"plugin.library.paths": "/x.so"},
                {"security.protocol": "SSL", "ssl.engine.location": "/x.so"},
                {"ssl.providers": "x"},
                {"sasl.mechanism": "PLAIN", "sasl.kerberos.kinit.cmd": "sh"},
                {"sasl.mechanism": "PLAIN", "sasl.kerberos.principal": "$(sh)"},
                {"security.protocol": "${PROTOCOL}"},
                {"security.protocol": "sasl_plaintext"},  # GSSAPI, which runs kinit
                {"security.protocol": "SASL_SSL", "sasl.mechanisms": "GSSAPI"},
                {"ssl.key.location": "/key"},
                {"ssl.ca.location": "/dev/zero"},
                {"offset.store.path": "/x"},
                {"a.new.option": "x"},
            )
        ),
        m.KafkaSink("h:1", "t", value="v", options={"ssl.engine.location": "/x.so"}),
    ],
)
def test_pickles_and_sql_that_runs_programs_are(kind: object) -> None:
    assert brings_code(graph(kind)).startswith("operator 'o', which ")


@pytest.mark.parametrize(
    "text", ["map ", " ", "(", " (", "select transform(", "using map ", "/* ", "'\\", "\\'", '"\\', '\\"', "`"]
)
def test_a_long_text_is_looked_through_in_one_go(text: str) -> None:
    """Nobody has looked at its length yet: with more time than in proportion to it, this would not end."""
    spans_rows(text * (2**20 // len(text)))
    brings_code(graph(m.SqlTransform(text * (2**20 // len(text)))))


def test_what_is_quoted_or_a_comment_spans_no_rows() -> None:
    assert spans_rows("SELECT 'it\\'s', \"GROUP BY\", `LIMIT 1` /* sum(x) */ FROM input -- GROUP BY\n") == ""
    assert spans_rows("SELECT 'a\\\\', count(x) FROM input") == "an aggregate"
    assert spans_rows("SELECT /* a */ 1 FROM input GROUP /* b */ BY k") == "GROUP BY"


def test_every_field_of_bytes_counts() -> None:
    """A kind of operator that is added later, and brings a pickle, is not forgotten."""
    kinds = [
        kind
        for kind in vars(m).values()
        if isinstance(kind, type)
        and any(field.type == "bytes" for field in getattr(kind, "__dataclass_fields__", {}).values())
    ]
    names = {kind.__name__ for kind in kinds}
    assert {"PythonTransform", "KeyedProcess", "PythonSource", "PythonSink", "ForeachBatchSink"} <= names
