#!/usr/bin/env bash
# Builds the image lockgate:latest (or the tag $1) for every role. Works without an image registry: the base image is
# then made from Debian's packages. Quick when nothing has changed.
set -euo pipefail
cd "$(dirname "$0")/.."
tag=${1:-lockgate:latest}
python=${PYTHON:-.venv/bin/python}
base=debian:bookworm-slim
suite=bookworm
image_python=3.11 # Debian bookworm's
context=docker/.context

fail() {
    echo "error: $*" >&2
    exit 2
}

checksum() { sha256sum | cut -d ' ' -f 1; }

# The prefix that gives root's rights; empty for root.
as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

check_engine() {
    command -v docker >/dev/null || fail "no container engine: install docker (Debian: apt-get install docker.io)"
    local said
    said=$(docker version --format '{{.Server.Version}}' 2>&1) \
        || fail "the container engine does not answer (${said##*$'\n'}); start it, or set DOCKER_API_VERSION when the client is newer than it"
}

ensure_base() {
    if docker image inspect "$base" >/dev/null 2>&1; then return; fi
    echo "pulling $base ..."
    if timeout "${PULL_TIMEOUT:-120}" docker pull --quiet "$base" >/dev/null 2>&1; then return; fi
    echo "no registry answers: making $base from Debian's packages ..."
    make_base
}

make_base() {
    if ! command -v debootstrap >/dev/null; then
        as_root apt-get update -qq && as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends debootstrap >/dev/null \
            || fail "debootstrap is needed and could not be installed; run: apt-get install debootstrap"
    fi
    local folder
    folder=$(mktemp -d)
    # shellcheck disable=SC2064
    trap "as_root rm -rf '$folder'" EXIT
    as_root debootstrap --variant=minbase "$suite" "$folder/tree" ${DEBIAN_MIRROR:+"$DEBIAN_MIRROR"} >"$folder/log" 2>&1 \
        || { tail -n 5 "$folder/log" >&2; fail "debootstrap could not make the base image; the lines above say why"; }
    if [ -n "${DEBIAN_SECURITY_MIRROR:-}" ]; then
        echo "deb $DEBIAN_SECURITY_MIRROR $suite-security main" | as_root tee -a "$folder/tree/etc/apt/sources.list" >/dev/null
    fi
    as_root rm -rf "$folder"/tree/var/cache/apt/archives/*.deb "$folder"/tree/var/lib/apt/lists/* \
        "$folder"/tree/usr/share/doc/* "$folder"/tree/usr/share/man/* "$folder"/tree/usr/share/locale/*
    as_root tar -C "$folder/tree" -c . | docker import --change 'CMD ["bash"]' - "$base" >/dev/null
    as_root rm -rf "$folder"
    trap - EXIT
}

# What is to be installed in the image: the versions that the venv has, for they were tested, where its Python is the
# image's; else what pyproject.toml asks for.
requirements() {
    "$python" - "$image_python" <<'PYTHON'
import re, sys, tomllib
from importlib.metadata import requires, version
wanted = tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"]
if sys.argv[1] != "%d.%d" % sys.version_info[:2]:
    print(*wanted, sep="\n")
    sys.exit()
found, left = {}, list(wanted)
while left:
    requirement = left.pop()
    name = re.match(r"[A-Za-z0-9._-]+", requirement)[0].lower()
    if "extra ==" in requirement or name in found:
        continue
    try:
        found[name] = version(name)
    except ModuleNotFoundError:
        continue  # for another system or Python
    left += requires(name) or []
print(*(f"{name}=={number}" for name, number in sorted(found.items())), sep="\n")
PYTHON
}

# Everything that pip must fetch: only when the dependencies have changed.
gather_dependencies() {
    requirements >"$context/requirements.txt.new"
    local wanted
    wanted=$(checksum <"$context/requirements.txt.new")
    if [ "$(cat "$context/dependencies.stamp" 2>/dev/null)" = "$wanted" ]; then return; fi
    echo "gathering the wheels of the dependencies ..."
    rm -rf "$context/dependencies" "$context/archive"
    mkdir -p "$context/dependencies"
    # PySpark comes as sources and holds nothing compiled: its wheel is made here. The rest comes as wheels for the image.
    "$python" -m pip wheel --quiet --no-deps --wheel-dir "$context/dependencies" \
        "$(grep '^pyspark' "$context/requirements.txt.new")" || fail "pip could not make PySpark's wheel; see above"
    local platforms=() machine minor
    machine=$(uname -m)
    for minor in 17 24 26 27 28 31 34 35 36; do platforms+=(--platform "manylinux_2_${minor}_$machine"); done
    "$python" -m pip download --quiet --dest "$context/dependencies" --only-binary=:all: --implementation cp \
        --python-version "$image_python" "${platforms[@]}" --platform "manylinux2014_$machine" \
        --find-links "$context/dependencies" -r "$context/requirements.txt.new" \
        || fail "pip could not download the dependencies; see above"
    mv "$context/requirements.txt.new" "$context/requirements.txt"
    echo "$wanted" >"$context/dependencies.stamp"
}

build_wheel() {
    local sources wanted
    mapfile -t sources < <(find lockgate coordinator taskmanager ha lockgate_process proto/lockgate_proto -name __pycache__ -prune -o -type f -print | LC_ALL=C sort)
    wanted=$(sha256sum pyproject.toml README.md "${sources[@]}" | checksum)
    if [ "$(cat "$context/wheel.stamp" 2>/dev/null)" != "$wanted" ]; then
        echo "building Lockgate's wheel ..."
        rm -rf "$context/lockgate"
        "$python" -m pip wheel --quiet --no-deps --wheel-dir "$context/lockgate" . || fail "pip could not build the wheel; see above"
        echo "$wanted" >"$context/wheel.stamp"
    fi
    # What writes the class archive, see the Dockerfile: renewed together with the dependencies only.
    [ -d "$context/archive" ] || cp -r "$context/lockgate" "$context/archive"
}

build_image() {
    rm -rf "$context/bin"
    cp -rp docker/bin "$context/bin"
    cp -p docker/slim.sh "$context/slim.sh"
    local log=$context/build.log
    echo "building $tag (log: $log) ..."
    # --network=host: apt inside a build reaches the mirrors of this host. The legacy builder will do, BuildKit may miss.
    docker build --network=host --tag "$tag" --file docker/Dockerfile "$context" >"$log" 2>&1 \
        || { tail -n 15 "$log" >&2; fail "the image could not be built; the lines above are the end of $log"; }
}

[ -x "$python" ] || fail "$python is missing; run: make setup"
check_engine
mkdir -p "$context"
exec 9>"$context/lock"
flock 9 # two builds at a time would take each other's files away
ensure_base
gather_dependencies
build_wheel
build_image
bytes=$(docker image inspect --format '{{.Size}}' "$tag")
echo "$tag is ready: $((bytes / 1000 / 1000)) MB"
