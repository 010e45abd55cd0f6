"""What `lockgate job KEY --story` shows."""

from __future__ import annotations

import datetime

from lockgate_common.printable import printable
from lockgate_proto.messages import JobStory, StoryLine


def story_text(story: JobStory) -> str:
    """One line for each event, its effects below it; what is missing comes last, where it is read."""
    width = max((len(line.id) for line in story.lines), default=0)
    lines = [text for line in story.lines for text in _lines(line, width)]
    return printable("\n".join([*lines, *([""] if lines and story.remarks else []), *story.remarks]))


def _lines(line: StoryLine, width: int) -> list[str]:
    moment = datetime.datetime.fromtimestamp(line.unix_us / 1e6).strftime("%H:%M:%S.%f")[:-3]
    change = f" [{line.change}]" if line.change else ""
    head = f"{moment}  {line.id.ljust(width)}  {_where(line)}: {line.event}{change}, because of {line.cause_id}"
    indent = " " * (len(moment) + 2 + width + 2)
    return [head, *(f"{indent}-> {effect}" for effect in line.effects)]


def _where(line: StoryLine) -> str:
    if not line.place:
        return line.process
    return f"{line.process} {line.place}{f'@{line.attempt}' if line.attempt else ''}"
