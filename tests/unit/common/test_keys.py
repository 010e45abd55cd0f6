"""Keys derived from the secret."""

from __future__ import annotations

import pytest
from lockgate_common.keys import derived_key, hkdf, mac


def test_hkdf_is_that_of_rfc_5869() -> None:
    found = hkdf(b"\x0b" * 22, bytes(range(13)), bytes(range(0xF0, 0xFA)))
    assert found.hex() == "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf"  # of test case 1


def test_each_purpose_and_each_secret_has_its_own_key() -> None:
    keys = {derived_key(secret, purpose) for secret in ("a" * 16, "b" * 16) for purpose in ("one", "two")}
    assert len(keys) == 4


def test_without_a_secret_no_key_is_derived() -> None:
    with pytest.raises(ValueError, match="no secret"):
        derived_key("", "one")


def test_parts_of_a_mac_cannot_be_cut_elsewhere() -> None:
    assert mac(b"k", b"ab", b"c") != mac(b"k", b"a", b"bc")
