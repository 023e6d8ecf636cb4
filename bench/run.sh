#!/usr/bin/env bash
# Measures the release build against a bare interpreter and `docker run`, on this machine. See README.md.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
# shellcheck source=scripts/lib.sh
source scripts/lib.sh
# shellcheck source=scripts/docker.sh
source scripts/docker.sh

# The bare interpreter needs the packages of the chart; the runner's versions, as far as they exist for it.
readonly BARE=$PWD/.build/bench-python

main() {
    make_docker_usable
    ./build.sh runners server
    need_command python3 python3
    if [[ ! -x $BARE/bin/python3 ]]; then
        python3 -m venv "$BARE"
        "$BARE/bin/pip" install --quiet numpy pandas matplotlib
    fi
    exec python3 bench/bench.py --server target/release/mcp-code-sandbox --python "$BARE/bin/python3" "$@"
}

main "$@"
