"""What a task manager knows of a source's splits from one look to the next."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from lockgate_proto.messages import AttemptId, DiscoverSplits, SplitState, StateHandle
from lockgate_taskmanager.task.known_splits import Found, KnownSplits, SplitListing

ATTEMPT = AttemptId("job", "run", 1)


class Folder:
    """Names that come into it."""

    def __init__(self, *names: str) -> None:
        self.names = list(names)

    def look(self, known: KnownSplits) -> Found:
        return tuple(SplitState(name) for name in self.names if name not in known), False


def request(number: int, *known: str) -> DiscoverSplits:
    return DiscoverSplits(ATTEMPT, "v", known, number)


def names_of(files: Sequence[StateHandle]) -> list[str]:
    return [file.path for file in files]


def names(found: Found) -> list[str]:
    return [text.split for text in found[0]]


def test_each_look_returns_the_changes_since_the_one_before() -> None:
    folder, listing = Folder("a", "b", "c"), SplitListing(names_of)
    assert names(listing.answer(request(1, "a"), folder.look)) == ["b", "c"]
    assert names(listing.answer(request(2), folder.look)) == []
    folder.names += ["d"]
    assert names(listing.answer(request(3), folder.look)) == ["d"]


def test_a_repeated_request_gets_the_same_answer() -> None:
    """The first answer may be lost with its stream: what it has reported would be known here and nowhere else."""
    folder, listing = Folder("a"), SplitListing(names_of)
    first = listing.answer(request(1), folder.look)
    folder.names += ["b"]
    assert listing.answer(request(1), folder.look) == first
    assert names(listing.answer(request(2), folder.look)) == ["b"]


def test_a_failed_listing_changes_nothing() -> None:
    folder, listing = Folder("a"), SplitListing(names_of)
    listing.answer(request(1), folder.look)
    folder.names += ["b"]

    def away(_: KnownSplits) -> Found:
        raise OSError("away")

    with pytest.raises(OSError, match="away"):
        listing.answer(request(2), away)
    assert names(listing.answer(request(2), folder.look)) == ["b"]


def test_a_leader_without_request_counts_sends_the_known_splits_each_time() -> None:
    folder, listing = Folder("a", "b"), SplitListing(names_of)
    assert names(listing.answer(request(0, "a"), folder.look)) == ["b"]
    assert names(listing.answer(request(0), folder.look)) == ["a", "b"]


def test_splits_in_the_files_of_a_snapshot_are_known() -> None:
    folder, listing = Folder("a", "b", "c"), SplitListing(names_of)
    first = DiscoverSplits(ATTEMPT, "v", ("a",), 1, (StateHandle(path="b"),))
    assert names(listing.answer(first, folder.look)) == ["c"]
    assert names(listing.answer(request(2), folder.look)) == []
