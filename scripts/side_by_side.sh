#!/usr/bin/env bash
# Makes targets side by side: side_by_side.sh MAKEFILE TARGET ...
# What each has printed stands in one piece. One that fails keeps none of the others from running, and is named in the
# last line. Targets that use part.sh say what they cost.
file=$1
shift
PARTS_LOG=$(mktemp)
export PARTS_LOG
trap 'rm -f "$PARTS_LOG"' EXIT

# Each takes up to 4 GB of memory. More than 2 disturb one another rather than use what the other leaves.
at_a_time() {
    local available_mb parts
    available_mb=$(awk '/^MemAvailable/ {print int($2 / 1024)}' /proc/meminfo 2>/dev/null)
    parts=$((${available_mb:-0} / 4000))
    echo $((parts < 1 ? 1 : parts > 2 ? 2 : parts))
}

code=0
make --file "$file" --jobs "${PARTS_AT_A_TIME:-$(at_a_time)}" --keep-going --output-sync=recurse "$@" || code=$?
echo
cat "$PARTS_LOG"
echo "== all: $((SECONDS / 60))m$((SECONDS % 60))s on the clock"
if [ "$code" != 0 ]; then
    failed=$(sed -n 's/^== \([^:]*\):.*, FAILED .*/\1/p' "$PARTS_LOG" | paste -sd, | sed 's/,/, /g')
    echo "== failed, in this order: ${failed:-see above}"
fi
exit "$code"
