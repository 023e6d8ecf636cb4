#!/usr/bin/env bash
# Runs every test, against a real Docker engine. Nothing is skipped where something is missing: what
# can be installed is, the rest fails with the reason.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")"
# shellcheck source=scripts/lib.sh
source scripts/lib.sh
# shellcheck source=scripts/docker.sh
source scripts/docker.sh

usage() {
    cat <<'USAGE'
usage: ./test.sh [ARGUMENT...]

Makes Docker and the images ready as ./start.sh does, installs the MCP clients that the tests start, then runs
the Rust tests (cargo-nextest where it is installed, cargo test otherwise) and the runners' comparisons with
plain interpreters.

With arguments (a filter, for example) only the Rust tests run, and get them.
USAGE
}

main() {
    if [[ ${1:-} == --help || ${1:-} == -h ]]; then
        usage
        exit
    fi
    can_compile || die 'the tests need cargo (see rust-version in Cargo.toml) and a C compiler: see https://rustup.rs'
    make_docker_usable
    make_compose_usable
    # The test of the compose files uses whichever there is.
    COMPOSE=$(compose_name)
    export COMPOSE
    need_command python3 python3
    need_command promtool prometheus
    need_command curl curl
    tests/browser/install.sh
    ./build.sh runners image socket-proxy
    tests/clients/install.sh
    test_server "$@"
    (($#)) || compare_runners
}

test_server() {
    if cargo nextest --version >/dev/null 2>&1; then
        watched 'cargo nextest' cargo nextest run --workspace --locked --no-fail-fast ${CI:+--profile ci} "$@"
        # The examples in the documentation, which nextest leaves out.
        (($#)) || watched 'cargo test --doc' cargo test --workspace --locked --doc
    else
        watched 'cargo test' cargo test --workspace --locked --no-fail-fast "$@"
    fi
}

# Each compare.py puts the same programs to its runner and to the plain interpreter.
compare_runners() {
    local script
    for script in runners/*/compare.py; do
        [[ ! -f $script ]] || watched "$script" python3 "$script"
    done
}

main "$@"
