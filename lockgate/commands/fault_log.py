"""Writes the traceback of an unexpected error."""

from __future__ import annotations

import datetime
import os
import sys
import traceback
from pathlib import Path

from lockgate_common import private_folder
from lockgate_common.masking import masked


def write_fault(error: BaseException) -> str:
    """Appends the traceback to the fault log and returns a phrase that says where that is; never raises."""
    base = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    path = Path(base) / "lockgate" / "faults.log"
    try:
        private_folder.make_missing(path.parent)
        with path.open("a", encoding="utf-8") as file:
            file.write(f"--- {datetime.datetime.now().isoformat(timespec='seconds')} {masked(' '.join(sys.argv))}\n")
            file.write(masked("".join(traceback.format_exception(error))))
    except OSError as problem:
        return f"its traceback could not be written to {path} ({problem.strerror})"
    return f"its traceback is in {path}"
