#!/bin/sh
# Make a base image from Debian packages, for machines without access to an image registry.
#   containers/base.sh localhost/bifocal-base        needs debootstrap, podman and root
set -eu
name=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
debootstrap --variant=minbase --include=python3,python3-venv,git,ca-certificates bookworm "$folder/root"
rm -rf "$folder"/root/var/cache/apt/archives/*.deb "$folder"/root/var/lib/apt/lists/*
tar --create --directory "$folder/root" . | podman import --change CMD=/bin/sh - "$name"
