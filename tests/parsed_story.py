"""What `lockgate job KEY --story --json` says, and how to follow it from an event to its causes."""

from __future__ import annotations

import json
from typing import Any

from lockgate_common.story_log import Outside

from lockgate.cli import run

Line = dict[str, Any]
OUTSIDE = frozenset(str(outside) for outside in Outside)


class ParsedStory:
    """A job's story."""

    def __init__(self, text: str) -> None:
        answer = json.loads(text)
        self.lines: list[Line] = answer["lines"]
        self.remarks: list[str] = answer["remarks"]
        self.by_id: dict[str, Line] = {line["id"]: line for line in self.lines}

    def chain(self, line: Line) -> list[Line]:
        """The line, its cause, the cause of that, as far as they are known."""
        found = [line]
        while found[-1]["cause_id"] in self.by_id:
            found.append(self.by_id[found[-1]["cause_id"]])
        return found

    def containing(self, text: str) -> list[Line]:
        """Lines whose event has this text in it."""
        return [line for line in self.lines if text in line["event"]]

    def check_order(self) -> None:
        """A cause stands above what it caused."""
        places = {line["id"]: at for at, line in enumerate(self.lines)}
        assert all(places[line["cause_id"]] < places[line["id"]] for line in self.lines if line["cause_id"] in places)

    def check_checkpoint(self) -> None:
        """The newest completed checkpoint, from its record back to the timer, and its barriers to their triggers."""
        complete = self.containing("is recorded in ZooKeeper, so it is complete")[-1]
        number = complete["event"].split()[1]
        chain = self.chain(complete)
        assert chain[-1]["cause_id"] in OUTSIDE
        texts = [line["event"] for line in chain]
        assert texts[1].endswith(f"acknowledges checkpoint {number}")
        assert f"the state of checkpoint {number} is stored" in texts[2]
        assert f"the state of checkpoint {number} is frozen" in texts[3]
        assert f"checkpoint id {number} is reserved in ZooKeeper" in texts
        assert len({line["process"] for line in chain}) >= 2
        aligned = self.containing(f"barrier {number} has arrived on every input channel")
        assert aligned
        for line in aligned:
            sent, triggered, reserved = self.chain(line)[1:4]
            assert f"outputs: barrier {number}" in sent["effects"]
            assert sent["place"] != line["place"]
            assert triggered["event"] == f"checkpoint {number} is triggered"
            assert reserved["event"] == f"checkpoint id {number} is reserved in ZooKeeper"
            assert any(effect.endswith(f"trigger checkpoint {number}") for effect in reserved["effects"])

    def check_restart(self, attempt: int) -> None:
        """The attempt, from its first thread back to the task manager whose loss ended the one before."""
        lost = next(line for line in self.containing("is lost:") if line["change"].endswith("RESTARTING"))
        assert lost["cause_id"] == "task manager"
        started = next(line for line in self.containing("its thread starts") if line["attempt"] == attempt)
        chain = self.chain(started)
        texts = [line["event"] for line in chain[1:3]]
        assert texts == [f"attempt {attempt} is deployed", f"attempt {attempt} is recorded in ZooKeeper"]
        assert lost in chain or lost["id"] in chain[-1]["event"], "the loss itself, or the timer that it has set"


def parsed_story(key: str, capsys: Any, *target: str) -> ParsedStory:
    """Runs the command. target: its options that name the cluster."""
    capsys.readouterr()
    assert run(["job", key, "--story", "--json", *target]) == 0
    return ParsedStory(capsys.readouterr().out)
