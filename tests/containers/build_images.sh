#!/usr/bin/env bash
# Builds images from the working tree, on the Dockerfile's base image, or where no registry can be reached on a stand-in
# for it.   build_images.sh IMAGE...
set -euo pipefail
cd "$(dirname "$0")/../.."

base=$(sed -n 's/^ARG BASE_IMAGE=//p' containers/Dockerfile)
if ! "${DOCKER:-docker}" pull --quiet "$base"; then
    BASE_IMAGE=$(tests/containers/base_image.sh)
    export BASE_IMAGE NETWORK=host
fi
REGISTRY="" containers/build.sh "$@"
