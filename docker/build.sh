#!/usr/bin/env bash
# Builds the image lockgate:latest (or the tag $1) for every role. Works without an image registry: the base image is
# then made from Debian's packages. Quick when nothing has changed. With --prepare in place of the tag it only fetches
# the parts of the image, which is mostly waiting.
set -euo pipefail
cd "$(dirname "$0")/.."
what=${1:-lockgate:latest}
python=${PYTHON:-.venv/bin/python}
base=debian:bookworm-slim
suite=bookworm
image_python=3.11 # Debian bookworm's
made_label=lockgate.base.made # of a base image that was made here; Unix seconds
base_days=${BASE_DAYS:-7}     # its longest age
keyring=${DEBIAN_KEYRING:-/usr/share/keyrings/debian-archive-keyring.gpg}
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

# The engine keeps a pulled base up to date. One that was built here is replaced once it is old.
ensure_base() {
    local made days
    if docker image inspect "$base" >/dev/null 2>&1; then
        made=$(docker image inspect --format "{{with .Config.Labels}}{{index . \"$made_label\"}}{{end}}" "$base")
        [ -n "$made" ] || return 0
        days=$((($(date +%s) - made) / 86400))
        [ "$days" -ge "$base_days" ] || return 0
        echo "$base was built here $days days ago: rebuilding it ..."
        pull_base || (make_base) || echo "warning: still using the $base of $days days ago" >&2
        return 0
    fi
    pull_base || make_base
}

pull_base() {
    echo "pulling $base ..."
    timeout "${PULL_TIMEOUT:-120}" docker pull --quiet "$base" >/dev/null 2>&1
}

ensure_debootstrap() {
    local missing=()
    command -v debootstrap >/dev/null || missing+=(debootstrap)
    command -v gpgv >/dev/null || missing+=(gpgv)
    [ -e "$keyring" ] || missing+=(debian-archive-keyring)
    [ ${#missing[@]} -gt 0 ] || return 0
    as_root apt-get update -qq && as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null \
        || fail "${missing[*]} is needed and could not be installed; run: apt-get install ${missing[*]}"
}

make_base() {
    echo "no registry answers: making $base from Debian's packages ..."
    ensure_debootstrap
    local folder
    folder=$(mktemp -d)
    # shellcheck disable=SC2064
    trap "as_root rm -rf '$folder'" EXIT
    as_root debootstrap --variant=minbase --force-check-gpg --keyring="$keyring" "$suite" "$folder/tree" ${DEBIAN_MIRROR:+"$DEBIAN_MIRROR"} >"$folder/log" 2>&1 \
        || { tail -n 5 "$folder/log" >&2; fail "debootstrap could not make the base image; the lines above say why"; }
    add_security_updates "$folder"
    as_root rm -rf "$folder"/tree/var/cache/apt/archives/*.deb "$folder"/tree/var/cache/apt/*.bin "$folder"/tree/var/lib/apt/lists/* \
        "$folder"/tree/usr/share/doc/* "$folder"/tree/usr/share/man/* "$folder"/tree/usr/share/locale/*
    as_root tar -C "$folder/tree" -c . \
        | docker import --change 'CMD ["bash"]' --change "LABEL $made_label=$(date +%s)" - "$base" >/dev/null \
        || fail "the engine has not taken the base image"
    as_root rm -rf "$folder"
    trap - EXIT
}

# Debian's security updates, from the mirror beside the one that debootstrap has used unless another is named.
add_security_updates() {
    local mirror security sources=$1/tree/etc/apt/sources.list
    mirror=$(sed -n 's|^deb \([^ ]*\) .*|\1|p' "$sources" | head -n 1)
    security=${DEBIAN_SECURITY_MIRROR:-$(sed 's|/*$||; s|/debian$|/debian-security|' <<<"$mirror")}
    if ! wget -q -T 20 -t 2 -O /dev/null "$security/dists/$suite-security/InRelease"; then
        echo "warning: no security updates at $security: name their mirror in DEBIAN_SECURITY_MIRROR, and docker rmi $base" >&2
        return
    fi
    echo "deb $security $suite-security main" | as_root tee -a "$sources" >/dev/null
    as_root chroot "$1/tree" sh -c 'apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get upgrade -qq -y' >"$1/log" 2>&1 \
        || { tail -n 3 "$1/log" >&2; echo "warning: the packages of $base are not up to date; the lines above say why" >&2; }
}

# The packages of the image: the tested versions of the venv, where its Python is the
# image's; else what pyproject.toml asks for. With Spark Connect, RocksDB, Kafka, JWTs, OpenTelemetry and PostgreSQL's
# driver (what extras of others ask for is named by itself).
requirements() {
    "$python" - "$image_python" <<'PYTHON'
import re, sys, tomllib
from importlib.metadata import requires, version
project = tomllib.load(open("pyproject.toml", "rb"))["project"]
extras = project["optional-dependencies"]
wanted = [*project["dependencies"], *extras["connect"], *extras["rocksdb"], *extras["kafka"], *extras["postgresql"], "psycopg-binary"]
wanted += [*extras["jwt"], "cryptography", *extras["otel"]]
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
    local wanted gathered=$context/dependencies
    requirements >"$context/requirements.txt"
    wanted=$(checksum <"$context/requirements.txt")
    if [ "$(cat "$context/dependencies.stamp" 2>/dev/null)" = "$wanted" ]; then return; fi
    echo "gathering the wheels of the dependencies ..."
    rm -rf "$gathered" "$context/archive"
    mkdir -p "$gathered"
    # PySpark comes as sources and holds nothing compiled: its wheel is made here. The rest comes as wheels for the image.
    "$python" -m pip wheel --quiet --no-deps --wheel-dir "$gathered" \
        "$(grep '^pyspark' "$context/requirements.txt")" || fail "pip could not make PySpark's wheel; see above"
    local platforms=() machine minor
    machine=$(uname -m)
    for minor in 17 24 26 27 28 31 34 35 36; do platforms+=(--platform "manylinux_2_${minor}_$machine"); done
    "$python" -m pip download --quiet --dest "$gathered" --only-binary=:all: --implementation cp \
        --python-version "$image_python" "${platforms[@]}" --platform "manylinux2014_$machine" \
        --find-links "$gathered" -r "$context/requirements.txt" \
        || fail "pip could not download the dependencies; see above"
    echo "$wanted" >"$context/dependencies.stamp"
}

build_wheel() {
    local sources wanted
    mapfile -t sources < <(find lockgate proto/lockgate_proto common ha coordinator taskmanager devtools web -name __pycache__ -prune -o -type f -print | LC_ALL=C sort)
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

# own: what a change of Lockgate changes.
build_image() {
    local tag=$1 log=$context/build.log
    rm -rf "$context/own"
    mkdir "$context/own"
    cp -rp docker/bin "$context/lockgate" "$context/own/"
    cp -p docker/slim.sh "$context/requirements.txt" "$context/dependencies/"
    echo "building $tag (log: $log) ..."
    # --network=host: apt inside a build reaches the mirrors of this host. --shm-size: room for the class archive.
    # The legacy builder is enough, BuildKit may be missing.
    docker build --network=host --shm-size=512m --tag "$tag" --file docker/Dockerfile "$context" >"$log" 2>&1 \
        || { tail -n 15 "$log" >&2; fail "the image could not be built; the lines above are the end of $log"; }
}

main() {
    [ -x "$python" ] || fail "$python is missing; run: make setup"
    check_engine
    mkdir -p "$context"
    exec 9>"$context/lock"
    flock 9 # two builds at a time would take each other's files away
    ensure_base
    gather_dependencies
    [ "$what" != --prepare ] || return 0
    build_wheel
    build_image "$what"
    local bytes
    bytes=$(docker image inspect --format '{{.Size}}' "$what")
    echo "$what is ready: $((bytes / 1000 / 1000)) MB"
}

[ "${BASH_SOURCE[0]}" != "$0" ] || main # its functions alone where another script reads it
