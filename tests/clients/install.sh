#!/usr/bin/env bash
# Installs the MCP clients that the tests start, at the versions that are pinned here, into .build/clients.
# What is there already stays: the next start takes no time.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/../.."
# shellcheck source=scripts/lib.sh
source scripts/lib.sh

readonly PINS=tests/clients
readonly CLIENTS=$BUILD_STATE/clients

main() {
    mkdir -p "$CLIENTS"
    install_python
    install_node
}

install_python() {
    local wanted
    need_command python3 python3
    wanted=$(python3 --version && sha256sum "$PINS/requirements.txt")
    ! is_installed venv "$wanted" || return 0
    python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        die "the Python clients need Python 3.11 or newer, this is $(python3 --version)"
    need_ensurepip
    step clients-python 'installing the Python MCP clients' make_venv
    remember venv "$wanted"
}

make_venv() {
    python3 -m venv --clear "$CLIENTS/venv" &&
        timeout 900 "$CLIENTS/venv/bin/pip" install --require-hashes --only-binary :all: \
            --requirement "$PINS/requirements.txt"
}

# Debian has the command without what makes it work.
need_ensurepip() {
    ! python3 -c 'import ensurepip' 2>/dev/null || return 0
    can_install || die "Python's venv is missing; install it (Debian and Ubuntu: apt-get install python3-venv)"
    install_packages python3-venv
}

# Any npm will do: the Node that runs the clients is pinned with them.
install_node() {
    local wanted
    # A program finds its packages beside itself or above, nowhere else.
    ln -sfn "../../$CLIENTS/node_modules" "$PINS/node_modules"
    wanted=$(uname -m && sha256sum "$PINS/package.json" "$PINS/package-lock.json")
    ! is_installed node_modules "$wanted" || return 0
    need_command npm npm
    step clients-node 'installing the Node MCP clients' make_node_modules
    remember node_modules "$wanted"
}

make_node_modules() {
    cp "$PINS/package.json" "$PINS/package-lock.json" "$CLIENTS" &&
        timeout 900 npm ci --prefix "$CLIENTS" --ignore-scripts --no-audit --no-fund &&
        link_node
}

# Node comes as the one of two packages that is for this machine. Old versions of npm do not link it.
link_node() {
    local packages=("$CLIENTS"/node_modules/node-linux-*)
    ln -sfn "../${packages[0]##*/}/bin/node" "$CLIENTS/node_modules/.bin/node" &&
        "$CLIENTS/node_modules/.bin/node" --version
}

# is_installed DIRECTORY WANTED: whether the last that was put there is what is wanted now.
is_installed() {
    [[ -d $CLIENTS/$1 && $(cat "$CLIENTS/$1.pins" 2>/dev/null) == "$2" ]]
}

remember() {
    printf '%s\n' "$2" >"$CLIENTS/$1.pins"
}

main "$@"
