#!/usr/bin/env bash
# Builds images, and pushes them where REGISTRY says so.   containers/build.sh [cpu] [tpu] [serving]
#
#   REGISTRY    HOST/PROJECT/REPOSITORY to push to. Empty: only here, as tpu-pipelines/IMAGE
#   TAG         of the image: the commit, and only here `unreleased`, if not given. A pipeline names the digest of what was
#               pushed, which goes to build/IMAGE.ref
#   REVISION    the commit, for the image's label
#   BASE_IMAGE  another base than the Dockerfile's: Debian's or Ubuntu's Python 3.11, by digest
#   USER_ID     of the user in the image; 0 for root
#   NETWORK     of the build's steps, such as host
#   CACHE       1: keep all layers in the registry and start from those there (needs buildx and REGISTRY)
#   DOCKER      the docker command
set -euo pipefail
cd "$(dirname "$0")/.."

docker=${DOCKER:-docker}
registry=${REGISTRY:-}
revision=${REVISION:-$(git describe --always --abbrev=40 --dirty --exclude '*' 2>/dev/null || echo unknown)}
short=${revision:0:12}
[ "$revision" = "${revision%-dirty}" ] || short+=-dirty
version=$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
export DOCKER_BUILDKIT=1
# One manifest an image: with an attestation, buildx makes it an index, which Cloud Run refused (docker/buildx#1533).
export BUILDX_NO_DEFAULT_ATTESTATIONS=1

[ $# -gt 0 ] || set -- cpu tpu serving
for image in "$@"; do
    name=tpu-pipelines/$image:${TAG:-unreleased}
    [ -z "$registry" ] || name=$registry/$image:${TAG:-$short}
    words=(--file containers/Dockerfile --target "$image" --tag "$name")
    words+=(--label "org.opencontainers.image.title=tpu-pipelines/$image")
    words+=(--label "org.opencontainers.image.revision=$revision" --label "org.opencontainers.image.version=$version")
    [ -z "${BASE_IMAGE:-}" ] || words+=(--build-arg "BASE_IMAGE=$BASE_IMAGE")
    [ -z "${USER_ID:-}" ] || words+=(--build-arg "USER_ID=$USER_ID")
    [ -z "${NETWORK:-}" ] || words+=(--network "$NETWORK")

    digest=
    if [ -n "${CACHE:-}" ]; then
        : "${registry:?CACHE keeps layers in a registry: give REGISTRY too}"
        $docker buildx inspect tpu-pipelines >/dev/null 2>&1 || $docker buildx create --name tpu-pipelines
        mkdir -p build
        $docker buildx build --builder tpu-pipelines "${words[@]}" --push --metadata-file "build/$image.json" \
            --cache-from "type=registry,ref=$registry/cache:$image" \
            --cache-to "type=registry,ref=$registry/cache:$image,mode=max" .
        digest=$(sed -n 's/.*"containerimage.digest": *"\(sha256:[0-9a-f]*\)".*/\1/p' "build/$image.json")
    else
        $docker build "${words[@]}" .
        if [ -n "$registry" ]; then
            digest=$($docker push "$name" | tee /dev/stderr | sed -n 's/.* digest: \(sha256:[0-9a-f]*\) .*/\1/p')
        fi
    fi
    if [ -n "$registry" ]; then
        mkdir -p build
        echo "$registry/$image@$digest" >"build/$image.ref"
    fi
    echo "built $name"
done
