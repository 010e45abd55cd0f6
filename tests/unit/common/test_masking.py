"""What is secret in a text, and what only looks like it."""

from __future__ import annotations

import pytest
from lockgate_common.masking import masked

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
        "postgresql://db:5432/shop?sslmode=require",
        "s3://bucket/path?region=x&scheme=http",
        "key=word partitions=4",
        "abfs://container@account.dfs.core.windows.net/path",
        "hdfs://user@namenode:8020/path",
    ],
)
def test_the_rest_stays_as_it_is(text: str) -> None:
    assert masked(text) == text


def test_public_parts_of_a_url_are_still_shown() -> None:
    assert (
        masked(f"postgresql://shop:{SECRET}@db:5432/shop?sslmode=x") == "postgresql://shop:***@db:5432/shop?sslmode=x"
    )


@pytest.mark.parametrize("text", ["a", "a://", "a://b:", "password", "a.secret_", "token='", "@"])
def test_a_long_text_is_masked_in_one_go(text: str) -> None:
    """With more time than in proportion to its length, this would not end."""
    masked(text * (400_000 // len(text)) + "://")
