"""`python -m tests.interaction`: what is different from the files; with --rewrite, makes them the same."""

from __future__ import annotations

import argparse
import difflib
import sys

from tests.interaction.interpreter import TESTDATA, played


def main() -> int:
    """The exit code: 1 when a trace differs and is not rewritten."""
    parser = argparse.ArgumentParser(prog="python -m tests.interaction", description=__doc__)
    parser.add_argument("--rewrite", action="store_true", help="write the traces of this code into the files")
    parser.add_argument("only", nargs="*", metavar="NAME", help="of a file, without .txt (default: all)")
    options = parser.parse_args()
    has_changed = False
    for path in sorted(TESTDATA.glob("*.txt")):
        if options.only and path.stem not in options.only:
            continue
        before, now = path.read_text(encoding="utf-8"), played(path)
        has_changed = has_changed or now != before
        sys.stdout.writelines(
            difflib.unified_diff(before.splitlines(True), now.splitlines(True), path.name, "this code", n=1)
        )
        if options.rewrite:
            path.write_text(now, encoding="utf-8")
    return 1 if has_changed and not options.rewrite else 0


if __name__ == "__main__":
    sys.exit(main())
