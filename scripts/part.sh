#!/usr/bin/env bash
# Runs a command and says what it cost: part.sh NAME COMMAND ...
# With PARTS_LOG=FILE that sentence goes into the file, too, and how the command ended.
name=$1
shift
TIMEFORMAT="%0lR on the clock, %0lU + %0lS of processors"
exec 3>&1 4>&2
cost=$({ time "$@" >&3 2>&4; } 2>&1)
code=$?
end=""
[ $code = 0 ] || end=", FAILED with exit code $code"
echo "== $name: $cost$end" | tee -a "${PARTS_LOG:-/dev/null}" >&2
exit $code
