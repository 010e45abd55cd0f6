"""What is secret in a text, and what only looks like it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lockgate_common import masking
from lockgate_common.masking import has_stray_at, masked

_ASCII = st.characters(codec="ascii")
SECRET, NUMBERS, SECRET_HEX = "geheim9", "12345678", "5ec2e7" * 8

HOLDERS = [
    f"postgresql://shop:{SECRET}@db:5432/shop?sslmode=require",
    f"postgresql://db/shop?user=shop&password={SECRET}&sslmode=require",
    f"postgresql+psycopg://shop:a/{SECRET}@db/shop",
    f"cannot open s3://AKIA:{SECRET}@bucket/path?region=x, since it is not there",
    f"s3://bucket/x?access_key=AKIA&secret_key={SECRET}&scheme=http",
    f"https://{SECRET}@host/",
    f"9.https://{SECRET}@host/",
    f"note=password={SECRET}",
    f"a://b:c@host,a://b:c/{SECRET}@host",
    f"password= token={SECRET}",
    f"abfs://box@account/x?account_key={SECRET}",
    f"sc://spark:15002/;use_ssl=true;token={SECRET}",
    f"{{'AWS_SECRET_ACCESS_KEY': '{SECRET}', 'region': 'x'}}",
    f'{{"sasl.password": "{SECRET}"}}',
    f"sasl.jaas.config=\"org.x required username='u' password='{SECRET}';\"",
    f"host=db user=shop password={SECRET} dbname=shop",
    f"host=db password = '{SECRET} with spaces' dbname=shop",
    f"Credentials(secret='{SECRET}', tls=None)",
    f"authorization: Bearer {SECRET}",
    f"Authorization: Basic {SECRET}",
    f"jdbc:postgresql://db/shop?password={NUMBERS}",
    f"pwd={NUMBERS}",
    f"lockgate.0123456789ab.{SECRET_HEX}.{SECRET_HEX} is a token",
    f"the JWT eyJhbGciOiJFUzI1NiJ9.{SECRET}.c2ln is wrong",
    f"--spark-option spark.authenticate.secret={SECRET}",
    f"private_key={SECRET}",
    f'{{"private_key": "-----BEGIN PRIVATE KEY-----\\nMII{SECRET}\\n-----END PRIVATE KEY-----\\n"}}',
    f"ssl.key.pem=-----BEGIN PRIVATE KEY-----\n{SECRET}\n{SECRET}\n-----END PRIVATE KEY-----",
    f"-----BEGIN EC PRIVATE KEY-----\n{SECRET} and no end",
    f"password: {SECRET}",
    f"{{password: {SECRET}}}",
    f'password="a\\"{SECRET}"',
    f"password='it''s{SECRET}'",
    f"password='{SECRET}",
    f"password=>{SECRET}",
    f"Map(password -> {SECRET})",
    f"password=(a){SECRET}",
    f"password=a,{SECRET}",
    f"password=a;{SECRET}",
    f"password=a&{SECRET}",
    f'"{{\\"password\\": \\"{SECRET}\\"}}"',
    f"encryption_key={SECRET}",
    f"db_pass={SECRET}",
    f"mypwd={SECRET}",
    f"lockgate submit --password {SECRET} job.py",
    f"https://host/x?key={SECRET}",
    f"https://host/x?a=b&code={SECRET}",
    f"Authorization: bearer {SECRET}",
    f"authorization=BASIC {SECRET}",
    f"postgresql://shop:a?{SECRET}@db/shop",
    f"postgresql://shop:a#{SECRET}@db/shop",
    f"jdbc:oracle:thin:scott/{SECRET}@//db:1521/x",
]


@pytest.mark.parametrize("text", HOLDERS)
def test_a_secret_is_masked(text: str) -> None:
    shown = masked(text)
    assert not [secret for secret in (SECRET, NUMBERS, SECRET_HEX) if secret in shown]
    assert "***" in shown
    assert masked(shown) == shown


@pytest.mark.parametrize(
    "text",
    [
        "the token 5 is older than 6",
        "granted token=7 to coordinator-0",
        "the secret in /a/b is shorter than 16 characters; remove the file",
        "set LOCKGATE_SECRET_FILE (or --secret-file=/a/secret) to the secret file of the cluster",
        "send `authorization: Bearer <content of the secret file>`",
        'FATAL: password authentication failed for user "shop"',
        "sasl.password=${KAFKA_PASSWORD}",
        "postgresql://shop:${SHOP_PASSWORD}@db/shop",
        "postgresql://db:5432/shop?sslmode=require",
        "s3://bucket/path?region=x&scheme=http",
        "key=word partitions=4",
        "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column `key` cannot be resolved. Did you mean: [`keys`, `token`]?",
        "SELECT key, count(*) AS n FROM words WHERE key = 'a' AND primary_key = 5 GROUP BY key",
        "[PARSE_SYNTAX_ERROR] Syntax error at or near 'FORM': extra input 'FORM'. SQLSTATE: 42601 (line 1, pos 9)",
        "org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times",
        "at org.apache.spark.security.CryptoStreamUtils.read(CryptoStreamUtils.scala:12)",
        '  File "/srv/books/token_count.py", line 7, in <lambda>',
        "file:///data/key=5/part-0.parquet: key.deserializer=x message.key: y",
        "ssl.key.location=/etc/key.pem --secret-file /etc/secret --token-file /etc/token",
        "use basic authentication, or a bearer",
        "https://host:8080/x?mail=a@b",
        "bypass=5 compass=north code=7 tokenizer=space",
        "hdfs://namenode:8020/a?b=c",
        "abfs://container@account.dfs.core.windows.net/path",
        "hdfs://user@namenode:8020/path",
    ],
)
def test_the_rest_stays_as_it_is(text: str) -> None:
    assert masked(text) == text


_ORDINARY = st.text(st.characters(exclude_categories=("Cs",)), max_size=30)
_VALUE = st.text("abcdefghijklmnopqrstuvwxyz0123456789!#$%*+-./:?@^_|~", min_size=8, max_size=20).map("Zq7".__add__)
_NAMES = st.sampled_from(
    [
        "password",
        "db.password",
        "PGPASSWORD",
        "sasl.password",
        "AWS_SECRET_ACCESS_KEY",
        "account_key",
        "api-key",
        "private_key",
        "encryption.key",
        "client_secret",
        "token",
        "credentials",
        "passphrase",
        "db_pass",
        "pwd",
    ]
)
_FORMS = st.sampled_from(
    (
        *("{0}={1}", "{0} = {1}", "{0}: {1}", "{0}=>{1}", "{0}='{1}'", '{0}="{1}"', "'{0}': '{1}'", '{{"{0}": "{1}"}}'),
        *("--{0} {1}", "--{0}={1}", '\\"{0}\\": \\"{1}\\"', "https://h/p?a=b&{0}={1}", "Map({0} -> {1})", "({0}={1})"),
    )
)


@given(_ORDINARY, _NAMES, _FORMS, _VALUE, _ORDINARY)
def test_whatever_is_around_it_a_secret_is_masked(before: str, name: str, form: str, value: str, after: str) -> None:
    """Ends of words apart, the surroundings are anything: other settings, half of a quotation, control characters."""
    text = f"{before} {form.format(name, value)} {after}"
    assert value not in masked(text)
    assert "Zq7" not in masked(text)


@given(_ORDINARY)
def test_masking_again_changes_nothing(text: str) -> None:
    assert masked(masked(f"password={text}")) == masked(f"password={text}")


_WORDS = [
    "SELECT",
    "key",
    "FROM",
    "t",
    "WHERE",
    "a",
    "=",
    "'b'",
    "AND",
    "c:",
    "d",
    "->",
    "/a/b.py:7",
    "(x,",
    "y)",
    "[z]",
    "{w}",
    "password",
    "token",
    "5",
]


@given(st.lists(st.sampled_from(_WORDS)).filter(lambda words: not {"=", "->"} & set(words)))
def test_ordinary_words_stay(words: list[str]) -> None:
    assert masked(" ".join(words)) == " ".join(words)


def test_public_parts_of_a_url_are_still_shown() -> None:
    assert (
        masked(f"postgresql://shop:{SECRET}@db:5432/shop?sslmode=x") == "postgresql://shop:***@db:5432/shop?sslmode=x"
    )


@pytest.mark.parametrize(
    "text",
    [
        "a",
        "a://",
        "a://b:",
        "a://b:?",
        "?a=",
        "password",
        "a.secret_",
        "token='",
        "@",
        "password=&",
        "password=(",
        "pwd=\\'",
        "--pwd ",
    ],
)
def test_a_long_text_is_masked_in_one_go(text: str) -> None:
    """With more time than in proportion to its length, this would not end."""
    masked(text * (400_000 // len(text)) + "://")
    masked(f"password={text * (400_000 // len(text))}")
    masked("-----BEGIN PRIVATE KEY-----" * 10_000)
    assert not has_stray_at(f"a://b:{text.replace('@', '') * 100_000}")


@given(st.from_regex(masking._SECRET_NAME, alphabet=_ASCII) | st.from_regex(masking._OF_QUERY, alphabet=_ASCII))
def test_names_of_secrets_are_noticed_without_a_pattern(name: str) -> None:
    """So a line without any of these words need not be searched for names."""
    assert any(word in name.lower() for word in masking._IN_SECRET_NAMES)
