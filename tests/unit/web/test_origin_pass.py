"""The pass with which a page reads at another coordinator."""

from __future__ import annotations

from lockgate_web.origin_pass import OriginPasses

SECRET = "a secret of sixteen characters"
ORIGIN = "http://127.0.0.1:7080"


def test_a_pass_is_for_one_origin_of_one_cluster_and_for_a_day() -> None:
    now = 1_000.0
    passes = OriginPasses(SECRET, lambda: now)
    shown = f"a=b&pass={passes.of(ORIGIN)}".encode()
    assert passes.is_valid(ORIGIN, shown)
    assert not passes.is_valid("http://127.0.0.1:7081", shown)
    assert not passes.is_valid("", shown)
    assert not OriginPasses("another secret of length", lambda: now).is_valid(ORIGIN, shown)
    now += 24 * 3600
    assert not passes.is_valid(ORIGIN, shown)


def test_an_invalid_pass_is_refused() -> None:
    passes = OriginPasses(SECRET, lambda: 1_000.0)
    late = passes.of(ORIGIN).replace("87400", "99999")
    for query in (b"", b"pass=", b"pass=.", b"pass=99999999999999999999.0", f"pass={late}".encode(), b"pass=\xff.\xff"):
        assert not passes.is_valid(ORIGIN, query)
    assert OriginPasses("").of(ORIGIN) == ""
    assert not OriginPasses("").is_valid(ORIGIN, b"pass=99999999999.")
