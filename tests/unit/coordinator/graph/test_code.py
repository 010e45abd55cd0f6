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
        m.SqlTransform("SELECT delete, insert, update FROM input"),
        m.SqlTransform("WITH a AS (SELECT * FROM input) SELECT `a`.`value` FROM a"),
        m.SqlTransform("SELECT xpath_string(value, 'a/b') AS x, from_json(value, 'y INT') FROM input"),
        m.SqlSink("postgresql://shop:${SHOP_PASSWORD}@db/shop", "t", ("k",)),
        m.KafkaSink("h:1", "t", value="v", options={"sasl.password": "${KAFKA_PASSWORD}"}),
    ],
)
def test_sql_and_built_in_operators_are_not_code(kind: object) -> None:
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
        m.SqlTransform("FROM input INSERT OVERWRITE DIRECTORY '/x' USING text SELECT value"),
        m.SqlTransform("with a as (select 1) insert/**/into t select * from a"),
        m.SqlTransform("WITH a AS (SELECT 1) MERGE INTO t USING a ON true WHEN MATCHED THEN DELETE"),
        m.SqlTransform("WITH a AS (SELECT 1) DELETE /* x */ FROM t"),
        m.SqlTransform("WITH a AS (SELECT 1) UPDATE t SET x = 1"),
        m.SqlTransform("SELECT * FROM text.`/etc/hosts`"),
        m.SqlTransform("SELECT * FROM input JOIN csv . `file:x`"),
        m.SqlTransform("SELECT '${env:HOME}' FROM input"),
        m.SqlTransform("SELECT from_xml(value, 'a INT', map('rowValidationXSDPath', '/x')) FROM input"),
        m.SqlTransform("SELECT from_protobuf(value, 'M', '/x') FROM input"),
        m.SqlTransform("SELECT from_avro(value, '\"int\"', map('avroSchemaUrl', '/x')) FROM input"),
        m.EventTime("(SELECT max(value) FROM text.`/x`)"),
        m.EventTime("'${env:HOME}'"),
        m.KeyedAggregate(("k",), (m.Aggregate("n", m.AggregateFunction.MAX, "reflect('a', 'b')"),)),
        m.FileSource(path="/data", format=m.FileFormat.CSV, schema="a STRING DEFAULT '${env:HOME}'"),
        m.KafkaSource("h:1", ("t",), options={"sasl.kerberos.kinit.cmd": "sh"}),
        m.KafkaSource("h:1", ("t",), options={"ssl.engine.location": "/x.so"}),
        m.KafkaSink("h:1", "t", value="v", options={"plugin.library.paths": "/x.so"}),
    ],
)
def test_pickles_and_sql_that_runs_programs_are(kind: object) -> None:
    assert brings_code(graph(kind)).startswith("operator 'o', which ")


def test_keys_of_edges_become_sql_as_well() -> None:
    edge = m.Edge("v", "w", m.Partitioning.HASH, ("${env:HOME}",))
    assert brings_code(m.JobGraph(edges=(edge,))).startswith("the edge from 'v' to 'w', which ")


@pytest.mark.parametrize(
    "text",
    [
        "with ",
        "with insert ",
        ".`",
        ". ",
        ".`/",
        "${",
        "map ",
        " ",
        "(",
        " (",
        "select transform(",
        "using map ",
        "/* ",
        "'\\",
        "\\'",
        '"\\',
        '\\"',
        "`",
    ],
)
def test_a_long_text_is_looked_through_in_one_go(text: str) -> None:
    """Its length is not checked yet: with more time than in proportion to it, this would not end."""
    spans_rows(text * (2**20 // len(text)))
    brings_code(graph(m.SqlTransform(text * (2**20 // len(text)))))


def test_quoted_text_and_comments_span_no_rows() -> None:
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
