"""The container engine's client."""

from __future__ import annotations

import subprocess

from lockgate.errors import UserError


def docker(*arguments: str) -> str:
    """Runs `docker ARGUMENTS`; returns its output. Raises UserError with the engine's message when it fails."""
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0:
        raise UserError(f"`docker {' '.join(arguments)}` failed: {last_lines(done.stderr + done.stdout)}")
    return done.stdout


def last_lines(output: str) -> str:
    """The end of the output of a failed command, in one line."""
    lines = [line for line in output.splitlines() if line.strip()]
    return "; ".join(lines[-3:]) or "without a message"
