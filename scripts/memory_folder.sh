#!/usr/bin/env bash
# Prints a folder in memory for the temporary files of tests, where a sync costs nothing; or the usual one where memory
# is short. No test takes the machine's power away, so none can tell the difference.
free_mb() { df -Pm /dev/shm 2>/dev/null | awk 'NR==2 && $1 == "tmpfs" {print $4}'; }
available_mb() { awk '/^MemAvailable/ {print int($2 / 1024)}' /proc/meminfo 2>/dev/null; }
if [ -w /dev/shm ] && [ "$(free_mb || echo 0)" -ge 2000 ] 2>/dev/null && [ "$(available_mb)" -ge 6000 ] 2>/dev/null; then
    echo /dev/shm
else
    echo "${TMPDIR:-/tmp}"
fi
