#!/usr/bin/env bash
# Measures uploads and downloads of a large file against nginx, on this machine. See README.md.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
# shellcheck source=scripts/lib.sh
source scripts/lib.sh
# shellcheck source=scripts/docker.sh
source scripts/docker.sh

main() {
    make_docker_usable
    ./build.sh runners server
    need_command python3 python3
    # Only its program is used: with settings, a port and a process of the benchmark's own.
    need_command nginx nginx-light
    exec python3 bench/files.py --server target/release/mcp-code-sandbox "$@"
}

main "$@"
