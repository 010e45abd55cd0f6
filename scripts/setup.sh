#!/usr/bin/env bash
# Makes the virtual environment named by $1 with Lockgate and everything it needs; does nothing when it is up to date.
# With `pure` as $2 it gets only what the pure tests need: no Spark, and no Java on this machine.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=${1:-.venv}
what=${2:-all}
stamp="$venv/.lockgate-setup"
wanted=$(cat pyproject.toml scripts/pure_requirements.py | cksum)
case $what in
    all) needed_mb=2500 download_mb=500 ;;
    pure) needed_mb=600 download_mb=100 ;;
    *) echo "usage: $0 [VENV [pure]]" >&2; exit 2 ;;
esac

fail() {
    echo "error: $*" >&2
    exit 2
}

# Prints the command prefix that makes apt-get work here; fails where there is none.
apt_prefix() {
    command -v apt-get >/dev/null || return 1
    if [ "$(id -u)" = 0 ]; then echo env; elif sudo -n true 2>/dev/null; then echo sudo; else return 1; fi
}

apt_install() {
    local prefix
    prefix=$(apt_prefix) || return 1
    echo "installing $* ..."
    $prefix apt-get update -qq && $prefix env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

java_major() {
    local java=java
    [ -z "${JAVA_HOME:-}" ] || java="$JAVA_HOME/bin/java"
    "$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1
}

ensure_java() {
    local major
    major=$(java_major || true)
    [ "${major:-0}" -lt 17 ] || return 0
    for package in openjdk-17-jre-headless openjdk-21-jre-headless default-jre-headless; do
        if apt_install "$package" && major=$(java_major || true) && [ "${major:-0}" -ge 17 ]; then return 0; fi
    done
    fail "Java 17 or newer is needed and could not be installed; install it (Debian, Ubuntu: sudo apt-get install openjdk-17-jre-headless) and run this again"
}

find_python() {
    for candidate in ${PYTHON:-} python3 python3.13 python3.12 python3.11; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then echo "$candidate"; return; fi
    done
    return 1
}

# Python compiles a module when it is first imported, which most of the installed ones never are. Where it may not write
# what it compiles, each start of a process would compile them again, longer than everything else takes.
compile=--no-compile
[ -z "${PYTHONDONTWRITEBYTECODE:-}" ] || compile=--compile
pip_install() {
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check $compile "$@" \
        || fail "pip could not install the dependencies; the message above says which"
}

[ "$what" = pure ] || ensure_java
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then exit 0; fi

python=$(find_python) || fail "Python 3.11 or newer is needed; install it or name it with PYTHON=/path/to/python3.11 make setup"
free_mb=$(df -Pm . | awk 'NR==2{print $4}')
[ "$free_mb" -ge "$needed_mb" ] || fail "the disk has $free_mb MB free and the environment needs $needed_mb MB; free some space and run this again"
if [ ! -x "$venv/bin/pip" ]; then
    rm -rf "$venv"
    "$python" -m venv "$venv" 2>/dev/null || { rm -rf "$venv"; apt_install python3-venv && "$python" -m venv "$venv"; } \
        || fail "cannot make a virtual environment; install Debian's python3-venv package and run this again"
fi
echo "setting up $venv (the first time this downloads about $download_mb MB) ..."
if [ "$what" = pure ]; then
    "$venv/bin/python" scripts/pure_requirements.py >"$venv/requirements.txt"
    pip_install -r "$venv/requirements.txt"
    pip_install --no-deps -e .
else
    pip_install -e '.[dev]'
    "$venv/bin/lockgate" prepare 2>/dev/null \
        || echo "warning: task managers will start slowly; \`$venv/bin/lockgate prepare\` says why" >&2
fi
echo "$wanted" >"$stamp"
echo "$venv is ready"
