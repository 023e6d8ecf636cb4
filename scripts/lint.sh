#!/usr/bin/env bash
# Every check that needs no engine, the cheap ones first. Tools that are missing are built once, beneath .build/tools.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
# shellcheck source=scripts/lib.sh
source scripts/lib.sh

usage() {
    cat <<'USAGE'
usage: scripts/lint.sh [CHECK...]

checks, all but the last by default
  shellcheck   the scripts
  fmt          the Rust sources' layout
  typos        spelling, everywhere (typos.toml)
  clippy       Rust lints (Cargo.toml, clippy.toml); a warning is an error
  doc          the Rust documentation and its links
  machete      dependencies that nothing uses
  deny         the dependencies' licences and sources, and what must not be among them (deny.toml)
  advisories   dependencies with known holes; asks GitHub for today's list
USAGE
}

# Versions are part of the path: a new one here is a new tool.
readonly TOOLS=$PWD/$BUILD_STATE/tools

main() {
    (($#)) || set -- shellcheck fmt typos clippy doc machete deny
    can_compile || die 'cargo (see rust-version in Cargo.toml) and a C compiler are missing: see https://rustup.rs'
    local check
    for check in "$@"; do
        lint "$check"
    done
}

lint() {
    case $1 in
    shellcheck)
        need_command shellcheck shellcheck
        step shellcheck shellcheck shellcheck --external-sources \
            ./*.sh .ci/run scripts/*.sh bench/*.sh tests/browser/*.sh tests/clients/*.sh
        ;;
    fmt) step fmt 'cargo fmt' cargo fmt --all --check ;;
    typos)
        need_tool typos-cli 1.52.0
        step typos typos typos
        ;;
    clippy) step clippy 'cargo clippy' cargo clippy --workspace --all-targets --locked -- -D warnings ;;
    doc) RUSTDOCFLAGS='-D warnings' step doc 'cargo doc' cargo doc --workspace --no-deps --locked ;;
    machete)
        need_tool cargo-machete 0.9.2
        step machete 'cargo machete' cargo machete
        ;;
    deny) deny bans licenses sources ;;
    advisories) deny advisories ;;
    --help | -h) usage ;;
    *)
        usage >&2
        exit 2
        ;;
    esac
}

deny() {
    need_tool cargo-deny 0.20.2
    step deny "cargo deny $*" cargo deny --locked check --hide-inclusion-graph "$@"
}

# need_tool NAME VERSION: has that program of crates.io. Unoptimised: it is built in half the time, and has little to do.
need_tool() {
    local root=$TOOLS/$1-$2
    PATH=$root/bin:$PATH
    [[ -d $root/bin ]] || CARGO_PROFILE_DEV_DEBUG=0 \
        step "install-$1" "building $1" timeout 900 cargo install --quiet --locked --debug --root "$root" "$1@$2"
}

main "$@"
