#!/usr/bin/env bash
# Makes ready what tests/it/browser.rs needs: Chromium, and the pinned packages that drive and judge it.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/../.."
# shellcheck source=scripts/lib.sh
source scripts/lib.sh

readonly INSTALLED=$BUILD_STATE/browser

main() {
    need_command chromium chromium
    need_command node nodejs
    need_command npm npm
    # What npm writes at the end of an installation says whether it was this one.
    if [[ $INSTALLED/node_modules/.package-lock.json -nt tests/browser/package-lock.json ]]; then
        return
    fi
    mkdir -p "$INSTALLED"
    cp tests/browser/package.json tests/browser/package-lock.json "$INSTALLED"
    step browser 'npm ci (browser tests)' npm ci --prefix "$INSTALLED" --ignore-scripts --no-audit --no-fund
}

main "$@"
