"""The next version of Lockgate, as a copy of this one: for tests of an upgrade."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("proto", "common", "ha", "coordinator", "taskmanager", "devtools", "web", ".")
VERSION = "9.0.0"
_RELEASE = "proto/lockgate_proto/release.py"
_CHANGES = (
    (_RELEASE, "\nREVISION = 2\n", "\nREVISION = 3\n"),
    (_RELEASE, "\nRECORD_FORMAT = 2\n", "\nRECORD_FORMAT = 3\n"),
    (_RELEASE, "\nPLAIN_FORMAT = 1\n", "\nPLAIN_FORMAT = 3\n"),
    ("coordinator/lockgate_coordinator/checkpoint/content.py", "\nFORMAT_VERSION = 1\n", "\nFORMAT_VERSION = 2\n"),
)
_GROWN = {  # a record, and a message of either side, with a field that this version does not know, always set
    "AttemptRecord": "proto/lockgate_proto/v1/checkpoint.proto",
    "Register": "proto/lockgate_proto/v1/control.proto",
    "Registered": "proto/lockgate_proto/v1/control.proto",
}


class FutureVersion:
    """A source tree with a higher version, revision and formats, and further fields in messages."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for room in ROOMS:
            for package in (ROOT / room).glob("lockgate*/__init__.py"):
                # With what is compiled, which is valid for every file that is not changed below: its times are kept.
                shutil.copytree(package.parent, folder / room / package.parent.name)
        shutil.copy(ROOT / "proto/generate.py", folder / "proto")
        for file, before, after in _CHANGES:
            self.change(file, before, after)
        for name, file in _GROWN.items():
            self._add_field(name, file)
        subprocess.run([sys.executable, "proto/generate.py"], cwd=folder, check=True, env=self._environment())
        for name in _GROWN:
            self._always_set(name)
        about = folder / f"lockgate-{VERSION}.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: lockgate\nVersion: {VERSION}\n", encoding="utf-8"
        )

    @property
    def path(self) -> str:
        """For PYTHONPATH."""
        return os.pathsep.join(str(self._folder / room) for room in ROOMS)

    def work_only_with_itself(self) -> None:
        """Processes that are started from now on refuse revision 2 of the messages."""
        self.change(_RELEASE, "\nOLDEST_REVISION = 2\n", "\nOLDEST_REVISION = 3\n")

    def change(self, file: str, before: str, after: str) -> None:
        path = self._folder / file
        text = path.read_text(encoding="utf-8")
        assert text.count(before) == 1, f"{file} has changed: look for {before!r}"
        path.write_text(text.replace(before, after), encoding="utf-8")

    def _add_field(self, message: str, file: str) -> None:
        text = (self._folder / file).read_text(encoding="utf-8")
        body = text.partition(f"\nmessage {message} {{\n")[2].partition("\n}")[0]
        self.change(file, body, f"{body}\n  string of_next_version = 900;")

    def _always_set(self, message: str) -> None:
        head = f"class {message}:\n"
        messages = self._folder / "proto/lockgate_proto/messages.py"
        before, found, rest = messages.read_text(encoding="utf-8").partition(head)
        assert found
        unset = '    of_next_version: str = ""\n'
        assert unset in rest
        rest = rest.replace(unset, '    of_next_version: str = "new"\n', 1)
        messages.write_text(before + head + rest, encoding="utf-8")

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": self.path}
