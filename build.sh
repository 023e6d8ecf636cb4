#!/usr/bin/env bash
# Builds runner images, the server's image and its binary: what is missing or older than its sources.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")"
# shellcheck source=scripts/lib.sh
source scripts/lib.sh
# shellcheck source=scripts/docker.sh
source scripts/docker.sh

usage() {
    cat <<'USAGE'
usage: ./build.sh [--fresh] [TARGET...]

Builds what is missing or older than its sources, and runs the smoke cases of each new runner image.

targets
  all           everything below (the default) but the proxy; the binary only where cargo is installed
  runners       the image of every runner: every directory in runners/ with a Dockerfile
  runner NAME   one of them
  image         the server's image, mcp-code-sandbox:latest (needs no cargo)
  socket-proxy  the image that docker-compose-socket-proxy.yml puts before the engine's socket
  server        the server's release binary

options
  --fresh       build images without cache on fresh base images, for security updates
  --help        this text
USAGE
}

# Images are called by their build context here: runners/<name>, deploy/<name>, or . for the server's.
contexts=()
with_binary=
fresh=

main() {
    parse "$@"
    [[ -z $with_binary ]] || build_binary
    ((${#contexts[@]})) || return 0
    make_docker_usable
    build_images "${contexts[@]}"
    # Done for what was asked; an image that the smoke cases need besides may be as it is.
    fresh=
    local context
    for context in "${contexts[@]}"; do
        [[ $context == . ]] || smoke "$context"
    done
}

parse() {
    if [[ ${1:-} == --fresh ]]; then
        fresh=yes
        shift
    fi
    (($#)) || set -- all
    while (($#)); do
        case $1 in
        all)
            choose_runners runners/*/
            contexts+=(.)
            ! can_compile || with_binary=yes
            ;;
        runners) choose_runners runners/*/ ;;
        runner)
            choose_runners "runners/${2:-}/"
            shift
            ;;
        image) contexts+=(.) ;;
        socket-proxy) contexts+=(deploy/socket-proxy) ;;
        server) with_binary=yes ;;
        --help | -h)
            usage
            exit
            ;;
        *)
            usage >&2
            exit 2
            ;;
        esac
        shift
    done
}

choose_runners() {
    local directory found=${#contexts[@]}
    for directory in "$@"; do
        [[ ! -f ${directory}Dockerfile ]] || contexts+=("${directory%/}")
    done
    ((${#contexts[@]} > found)) || die "there is no ${1}Dockerfile; runners are: $(runner_names)"
}

is_chosen() {
    [[ " ${contexts[*]} " == *" $1 "* ]]
}

runner_names() {
    local dockerfile
    for dockerfile in runners/*/Dockerfile; do
        printf '%s ' "$(basename "$(dirname "$dockerfile")")"
    done
}

# ---- images

build_images() {
    local context stale=()
    for context in "$@"; do
        [[ -z $fresh ]] && is_current "$context" || stale+=("$context")
    done
    ((${#stale[@]})) || return 0
    scripts/base-images.sh ${fresh:+--fresh} "${stale[@]/%//Dockerfile}"
    for context in "${stale[@]}"; do
        build_image "$context"
    done
}

build_image() {
    local context=$1 tag commit=()
    tag=$(tag_of "$context")
    # The server says which commit it is.
    [[ $context != . ]] || commit=(--build-arg "COMMIT=$(git rev-parse --short=12 HEAD 2>/dev/null || true)")
    step "image-${tag%:*}" "building $tag" timeout 1800 docker build ${fresh:+--no-cache} \
        "${commit[@]}" \
        --label "sandbox.source=$(hash_of "$context")" --tag "$tag" "$context"
}

tag_of() {
    if [[ $1 == . ]]; then printf 'mcp-code-sandbox:latest'; else printf 'mcp-code-sandbox-%s:latest' "${1##*/}"; fi
}

# The image tells what it was built from. Contents, not times: a checkout makes everything new.
is_current() {
    local built_from
    built_from=$(timeout 30 docker image inspect --format '{{index .Config.Labels "sandbox.source"}}' "$(tag_of "$1")" 2>/dev/null) &&
        [[ $built_from == "$(hash_of "$1")" ]]
}

hash_of() {
    local paths=("$1") files
    # The server's context is what .dockerignore makes exceptions for.
    [[ $1 != . ]] || mapfile -t paths < <(printf '%s\n' Dockerfile .dockerignore && sed -n 's/^!//p' .dockerignore)
    files=("${paths[@]}" -type f -not -path '*/__pycache__/*' -not -path '*/node_modules/*')
    {
        # Of a file's mode, git keeps only this.
        find "${files[@]}" -perm -u+x | LC_ALL=C sort
        find "${files[@]}" -print0 | LC_ALL=C sort --zero-terminated | xargs --null sha256sum
    } | sha256sum | cut -d ' ' -f 1
}

# ---- the binary

# Cargo decides what there is to do; whether it deserves a line is only a guess by time.
build_binary() {
    local command=(cargo build --release --locked)
    if [[ -x $(server_binary) && -z $(find Cargo.toml Cargo.lock src -newer "$(server_binary)") ]]; then
        quietly server "${command[@]}"
    else
        step server 'compiling the server (minutes, the first time)' "${command[@]}"
    fi
}

# ---- smoke cases

# Runs a runner's smoke.json once per image, and remembers the image that passed.
smoke() {
    local cases=$1/smoke.json name=${1##*/} id passed
    [[ -f $cases ]] || return 0
    id=$(timeout 30 docker image inspect --format '{{.Id}}' "$(tag_of "$1")")
    passed=$BUILD_STATE/smoke/$name
    [[ $(cat "$passed" 2>/dev/null) != "$id" ]] || return 0

    # By the server that is built anyway; compiling it twice takes minutes.
    if is_chosen . || ! can_compile; then
        build_images .
        step "smoke-$name" "trying the $name runner" smoke_in_container "$cases"
    else
        build_binary
        step "smoke-$name" "trying the $name runner" timeout 600 "$(server_binary)" smoke "$cases"
    fi
    mkdir -p "$(dirname "$passed")"
    printf '%s\n' "$id" >"$passed"
}

# The runs' workspaces are mounted by the engine, so the path must be the same inside and outside.
smoke_in_container() {
    local cases=$PWD/$1 socket=${DOCKER_HOST:-$LOCAL_ENGINE} directory status=0
    directory=$(mktemp -d) && timeout 600 docker run --rm \
        --volume "${socket#unix://}:/var/run/docker.sock" \
        --volume "$directory:$directory" --env "TMPDIR=$directory" \
        --volume "$cases:/smoke.json:ro" \
        mcp-code-sandbox:latest smoke /smoke.json || status=$?
    rm -rf "$directory"
    return "$status"
}

main "$@"
