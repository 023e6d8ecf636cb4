#!/usr/bin/env bash
# Makes sure that every base image the given Dockerfiles start from is there: present already, pulled,
# or, where no registry can be reached, made on this machine under the same name. The Dockerfiles
# therefore stay the same for everyone, and nothing below them has to know where their base came from.
#
# What it can make:
#   debian:<suite>-slim          from Debian's package archive, with mmdebstrap
#   rust:<version>-slim-<suite>  from the image above, Debian's gcc, and this machine's Rust toolchain
#
# usage: scripts/base-images.sh [--fresh] DOCKERFILE...
#   --fresh   pull or make them anew even where they are present (security updates)
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
# shellcheck source=scripts/lib.sh
source scripts/lib.sh
# shellcheck source=scripts/docker.sh
source scripts/docker.sh

# An engine without a way to the registry says so within seconds; this is for slow lines.
readonly PULL_LIMIT_SECONDS=300

# A path of its own: installing ca-certificates in an image rewrites /etc/ssl/certs.
readonly BUNDLE_IN_IMAGE=/etc/ssl/host-ca-bundle.pem
# What makes OpenSSL, pip, requests, Node and Bun, curl and cargo trust that bundle.
readonly BUNDLE_VARIABLES=(SSL_CERT_FILE PIP_CERT REQUESTS_CA_BUNDLE NODE_EXTRA_CA_CERTS CURL_CA_BUNDLE CARGO_HTTP_CAINFO)

main() {
    local image fresh=
    if [[ ${1:-} == --fresh ]]; then
        fresh=yes
        shift
    fi
    choose_builder
    for image in $(bases_of "$@"); do
        [[ -z $fresh ]] && is_present "$image" || pull "$image" || make "$image"
    done
}

# The images named in FROM lines, without the names of earlier stages.
bases_of() {
    awk 'toupper($1) == "FROM" {
            image = ($2 ~ /^--/) ? $3 : $2
            if (!(image in stages) && image != "scratch" && !seen[image]++) print image
            if (toupper($(NF - 1)) == "AS") stages[$NF]
         }' "$@"
}

is_present() {
    timeout 30 docker image inspect "$1" >/dev/null 2>&1
}

pull() {
    local log=$BUILD_STATE/logs/pull.log
    mkdir -p "$BUILD_STATE/logs"
    printf 'pulling %s ... ' "$1" >&2
    if timeout "$PULL_LIMIT_SECONDS" docker pull --quiet "$1" >"$log" 2>&1; then
        say 'done'
    else
        say 'not possible, making it here instead'
        return 1
    fi
}

make() {
    if [[ $1 =~ ^debian:([a-z]+)-slim$ ]]; then
        make_debian "$1" "${BASH_REMATCH[1]}"
    elif [[ $1 =~ ^rust:([0-9.]+)-slim-([a-z]+)$ ]]; then
        make_rust "$1" "${BASH_REMATCH[1]}" "debian:${BASH_REMATCH[2]}-slim"
    else
        cannot_make "$1" 'this script knows only how to make debian:<suite>-slim and rust:<version>-slim-<suite>'
    fi
}

cannot_make() {
    die "the base image $1 is missing, cannot be pulled ($(tail -n 1 "$BUILD_STATE/logs/pull.log")), \
and cannot be made here: $2"
}

# ---- debian:<suite>-slim

make_debian() {
    local image=$1 suite=$2
    command -v mmdebstrap >/dev/null || {
        can_install || cannot_make "$image" 'mmdebstrap is not installed'
        # Ubuntu's own keyring knows nothing of Debian's keys.
        install_packages mmdebstrap debian-archive-keyring
    }
    step base-debian "making $image from Debian's packages" import_debian "$image" "$suite"
}

import_debian() {
    local image=$1 suite=$2 tree status=0
    tree=$(mktemp) && debootstrap_to "$tree" "$suite" && import_tree "$image" "$tree" || status=$?
    rm -f "$tree"
    return "$status"
}

# Without documentation, manuals and translations, as the official slim images.
debootstrap_to() {
    local tree=$1 suite=$2 bundle
    bundle=$(host_bundle)
    local options=(
        --variant=minbase --format=tar
        --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright'
        --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/info/*'
        --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-include=/usr/share/locale/locale.alias'
    )
    # The hook's "$1" is mmdebstrap's: the new tree.
    [[ -z $bundle ]] || options+=(--customize-hook="install -D -m 644 '$bundle' \"\$1$BUNDLE_IN_IMAGE\"")
    # As root where possible; otherwise mmdebstrap needs user namespaces, and says so if it lacks them.
    local as=()
    can_be_root && as=(as_root)
    "${as[@]}" timeout 600 mmdebstrap "${options[@]}" "$suite" - >"$tree"
}

import_tree() {
    local image=$1 tree=$2 variable
    local changes=(--change 'CMD ["bash"]')
    if [[ -n $(host_bundle) ]]; then
        for variable in "${BUNDLE_VARIABLES[@]}"; do
            changes+=(--change "ENV $variable=$BUNDLE_IN_IMAGE")
        done
    fi
    timeout 300 docker import "${changes[@]}" "$tree" "$image"
}

# The certificates this machine trusts: networks that keep registries out often re-sign TLS as well.
host_bundle() {
    local bundle
    for bundle in "${SSL_CERT_FILE:-}" /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/cert.pem; do
        if [[ -s $bundle ]]; then
            printf '%s' "$bundle"
            return
        fi
    done
}

# ---- rust:<version>-slim-<suite>

make_rust() {
    local image=$1 version=$2 debian=$3 toolchain
    toolchain=$(copyable_toolchain "$version") ||
        cannot_make "$image" "it takes a Rust toolchain of version $version or newer from https://rustup.rs on this machine"
    is_present "$debian" || pull "$debian" || make "$debian"
    step base-rust "making $image from this machine's toolchain" build_rust "$image" "$debian" "$toolchain"
}

# The directory of this machine's toolchain. A distribution's own lies spread over /usr and stays there.
copyable_toolchain() {
    local wanted=$1 sysroot found
    command -v rustc >/dev/null && sysroot=$(rustc --print sysroot) && [[ $sysroot != /usr ]] &&
        found=$(rustc --version | cut -d ' ' -f 2) && is_at_least "$wanted" "$found" &&
        printf '%s' "$sysroot"
}

# The official image's layout, with links in place of rustup's proxies: nothing in a build switches toolchains.
build_rust() {
    local image=$1 debian=$2 toolchain=$3 recipe status=0
    recipe=$(mktemp -d)
    cat >"$recipe/Dockerfile" <<DOCKERFILE
FROM $debian
ENV RUSTUP_HOME=/usr/local/rustup \\
    CARGO_HOME=/usr/local/cargo \\
    PATH=/usr/local/cargo/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
RUN apt-get update && \\
    apt-get install --yes --no-install-recommends ca-certificates gcc libc6-dev && \\
    rm -rf /var/lib/apt/lists/*
COPY bin /usr/local/rustup/toolchains/host/bin
COPY lib /usr/local/rustup/toolchains/host/lib
RUN mkdir -p /usr/local/cargo/bin && \\
    ln -s /usr/local/rustup/toolchains/host/bin/* /usr/local/cargo/bin/ && \\
    cargo --version && rustc --version
DOCKERFILE
    # Straight from the toolchain's directory to the engine, without a copy in between.
    tar --create --exclude=lib/rustlib/src \
        --directory "$recipe" Dockerfile \
        --directory "$toolchain" bin/cargo bin/rustc lib |
        timeout 900 docker build --tag "$image" - || status=$?
    rm -rf "$recipe"
    return "$status"
}

main "$@"
