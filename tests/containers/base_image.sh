#!/usr/bin/env bash
# Makes a stand-in for the base image where no image registry can be reached: Debian bookworm, whose Python is 3.11, by
# debootstrap, with this machine's certificates and pip settings inside. Prints the image's name.
#
# Needs root, debootstrap and a Docker engine. The image is kept under the hash of this script, so it is made once; to
# make it anew, remove it. What is built on it has this machine's settings in it: never push that.
set -euo pipefail

docker=${DOCKER:-docker}
name=tpu-pipelines-tests/base:$(sha256sum "$0" | cut -c1-12)
if $docker image inspect "$name" >/dev/null 2>&1; then
    echo "$name"
    exit
fi

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
debootstrap --variant=minbase --include=ca-certificates,python3,python3-venv bookworm "$root" >&2
rm -rf "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/* "$root"/var/log/* "$root"/usr/share/{doc,locale,man}

# What an installer in here needs to reach the package index as this machine does.
changes=()
for variable in PIP_INDEX_URL PIP_EXTRA_INDEX_URL UV_DEFAULT_INDEX UV_INDEX_URL; do
    [ -z "${!variable:-}" ] || changes+=(--change "ENV $variable=${!variable}")
done
[ ! -f /etc/pip.conf ] || install -m 644 /etc/pip.conf "$root/etc/pip.conf"
certificates=${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}
install -D -m 644 "$certificates" "$root/etc/ssl/certs/ca-certificates.crt"
changes+=(--change "ENV SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt")
changes+=(--change "ENV PIP_CERT=/etc/ssl/certs/ca-certificates.crt")

tar -C "$root" -c . | $docker import "${changes[@]}" - "$name" >&2
echo "$name"
