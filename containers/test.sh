#!/bin/sh
# 'make containers-test': install podman, build a base image and the images serve and cpu; search with 'bifocal serve' in a
# container, and run the small pipeline in containers. 'containers/test.sh serve' does the first alone.
# Not part of 'make test': it installs Debian packages, and takes about 20 minutes and 15 GB in BIFOCAL_CONTAINERS.
set -eu
cd "$(dirname "$0")/.."
skip() { echo "containers-test SKIPPED: $1"; exit 0; }
[ "$(id -u)" = 0 ] || skip "installing podman and debootstrap needs root"
# Three commands: dash looks only at the first argument of 'command -v'.
{ command -v podman && command -v runc && command -v debootstrap; } > /dev/null || {
  apt-get update --quiet && apt-get install --yes --quiet --no-install-recommends podman runc debootstrap
} || skip "podman, runc and debootstrap cannot be installed here"

work=$(realpath "${BIFOCAL_CONTAINERS:-/var/tmp/bifocal-containers}") && mkdir -p "$work"
export CONTAINERS_CONF="$work/containers.conf" CONTAINERS_STORAGE_CONF="$work/storage.conf"
# crun, podman's default runtime, needs cgroups that some kernels lack. The limits must not exceed those of this shell.
cat > "$CONTAINERS_CONF" << END
[containers]
netns = "host"
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
END
for driver in overlay vfs; do
  printf '[storage]\ndriver = "%s"\ngraphroot = "%s/%s"\nrunroot = "%s/run-%s"\n' \
    $driver "$work" $driver "$work" $driver > "$CONTAINERS_STORAGE_CONF"
  podman info > "$work/info.log" 2>&1 && break
done
podman info > /dev/null || skip "podman starts neither with overlay nor with vfs: $(tail -n 1 "$work/info.log")"

podman image exists localhost/bifocal-base || containers/base.sh localhost/bifocal-base > "$work/base.log"
podman run --rm localhost/bifocal-base true || skip "this kernel cannot start a container, see above"

# Reuse the package cache of the user.
cache=$(uv cache dir) && mkdir -p "$cache"
[ $# -gt 0 ] || set -- serve cpu
groups='' tests=''
for group; do groups="$groups --group $group" tests="$tests containers/test_$group.py"; done
# shellcheck disable=SC2086  # several words
python containers/build.py --engine podman $groups --base localhost/bifocal-base --output "$work/images.json" \
  --option=--volume="$(command -v uv):/usr/local/bin/uv:ro" --option=--volume="$cache:/cache" --option=--build-arg=UV_CACHE_DIR=/cache
podman image ls localhost/bifocal

podman system service --time=0 "unix://$work/podman.sock" & service=$!
trap 'kill $service' EXIT
# shellcheck disable=SC2086  # several words
DOCKER_HOST="unix://$work/podman.sock" IMAGES="$work/images.json" \
  pytest --import-mode=importlib --override-ini addopts= --verbose --timeout 3600 $tests
