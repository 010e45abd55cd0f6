"""The proof of the secret, from both sides."""

from __future__ import annotations

import pytest
from lockgate_common.proof import Introduction, Peer, UnprovenPeer, answer_to

SECRET = "s" * 32
SERVER = Peer("127.0.0.1:7070", "ab12")
METHOD = "/lockgate.v1.ControlService/Connect"


def authorization(introduction: Introduction) -> str:
    ((key, value),) = introduction.metadata
    assert key == "authorization"
    assert SECRET not in value
    return value


def test_both_sides_know_the_secret() -> None:
    introduction = Introduction(SECRET, SERVER, METHOD)
    answer = answer_to(SECRET, SERVER, METHOD, authorization(introduction))
    assert answer
    introduction.check(answer)


@pytest.mark.parametrize(
    ("secret", "server", "method"),
    [
        ("t" * 32, SERVER, METHOD),
        ("", SERVER, METHOD),
        (SECRET, Peer("127.0.0.1:7071", "ab12"), METHOD),
        (SECRET, Peer("127.0.0.1:7070", "cd34"), METHOD),
        (SECRET, SERVER, "/lockgate.v1.JobService/Submit"),
    ],
    ids=["another secret", "no secret", "another address", "another process", "another method"],
)
def test_a_call_for_another_process_is_not_admitted(secret: str, server: Peer, method: str) -> None:
    assert answer_to(secret, server, method, authorization(Introduction(SECRET, SERVER, METHOD))) is None


@pytest.mark.parametrize(
    "text", ["", "Bearer x", "Lockgate ", "Lockgate nonce", "Lockgate .", "Lockgate nonce.00", "Lockgate \u00e4.\u00e4"]
)
def test_an_invalid_proof_is_not_admitted(text: str) -> None:
    assert answer_to(SECRET, SERVER, METHOD, text) is None


def test_the_answer_to_an_earlier_call_proves_nothing() -> None:
    answer = answer_to(SECRET, SERVER, METHOD, authorization(Introduction(SECRET, SERVER, METHOD)))
    with pytest.raises(UnprovenPeer, match=r"127\.0\.0\.1:7070 does not prove"):
        Introduction(SECRET, SERVER, METHOD).check(answer)


def test_the_callers_own_proof_is_not_an_answer() -> None:
    introduction = Introduction(SECRET, SERVER, METHOD)
    reflected = authorization(introduction).rpartition(".")[2]
    for answer in ((), None, (("lockgate-proof", reflected),), (("lockgate-proof", ""),)):
        with pytest.raises(UnprovenPeer):
            introduction.check(answer)


def test_without_a_secret_nothing_is_shown_and_nothing_is_proven() -> None:
    introduction = Introduction("", SERVER, METHOD)
    assert introduction.metadata == ()
    with pytest.raises(UnprovenPeer):
        introduction.check((("lockgate-proof", ""),))
