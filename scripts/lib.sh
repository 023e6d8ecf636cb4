# How the scripts of this project speak, run steps, read settings and install packages.
# Sourced, never run: the sourcing script has set -euo pipefail and stands in the checkout's root.
# shellcheck shell=bash

# Where logs and stamps live. Everything in it can be deleted at any time.
readonly BUILD_STATE=.build

# rustup's cargo and the system's daemons are often missing from the PATH of services and bare shells.
PATH=$PATH:$HOME/.cargo/bin:/usr/sbin:/sbin

say() {
    printf '%s\n' "$*" >&2
}

die() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

# quietly NAME COMMAND...: runs the command with its output in NAME's log, shown only where it fails.
# A shell function as COMMAND must join its commands with &&: `set -e` does not act inside a condition.
quietly() {
    local log=$BUILD_STATE/logs/$1.log
    shift
    mkdir -p "$BUILD_STATE/logs"
    "$@" >"$log" 2>&1 </dev/null || report_failure "$?" "$log" "$@"
}

# step NAME LABEL COMMAND...: the same for what takes long enough to deserve a line with its duration.
step() {
    local name=$1 label=$2 began=$SECONDS
    shift 2
    printf '%s ... ' "$label" >&2
    quietly "$name" "$@"
    printf '%s\n' "$((SECONDS - began)) s" >&2
}

# watched LABEL COMMAND...: for what is worth reading while it runs, such as tests.
watched() {
    local label=$1 began=$SECONDS
    shift
    say "$label ..."
    "$@" </dev/null || die "$label: failed after $((SECONDS - began)) s"
    say "$label ... $((SECONDS - began)) s"
}

report_failure() {
    local status=$1 log=$2 lines=40
    shift 2
    # Nobody can open the log of a CI machine afterwards.
    [[ -z ${CI:-} ]] || lines=400
    printf 'failed\n\n' >&2
    tail -n "$lines" "$log" >&2
    printf '\n' >&2
    die "exit status $status of: $* (full log: $PWD/$log)"
}

# setting NAME [DEFAULT]: the value the server will see: environment first, then .env, then the default.
# .env is read, never sourced: its values are data.
setting() {
    local value=${!1:-}
    if [[ -z $value && -f .env ]]; then
        value=$(sed -n "s/^[[:space:]]*\(export[[:space:]]\+\)\?$1=//p" .env | head -n 1)
        value=${value%$'\r'}
        if [[ $value =~ ^\"([^\"]*)\" || $value =~ ^\'([^\']*)\' ]]; then
            value=${BASH_REMATCH[1]}
        else
            # Up to a comment.
            value=${value%%[[:space:]]#*}
        fi
    fi
    printf '%s' "${value:-${2:-}}"
}

# ---- becoming root, installing packages

can_be_root() {
    ((EUID == 0)) && return
    command -v sudo >/dev/null || return
    # Without a terminal sudo has nobody to ask for the password.
    [[ -t 2 ]] || sudo -n true 2>/dev/null
}

as_root() {
    if ((EUID == 0)); then "$@"; else sudo "$@"; fi
}

# Debian, Ubuntu and what derives from them.
has_apt() {
    command -v apt-get >/dev/null && grep -qE '^ID(_LIKE)?=.*(debian|ubuntu)' /etc/os-release
}

can_install() {
    has_apt && can_be_root
}

# install_packages NAME...: the distribution's own packages, with their recommendations where asked
# for by WITH_RECOMMENDS. Callers check can_install first, to say what is missing in their words.
install_packages() {
    local recommends=--no-install-recommends
    [[ -z ${WITH_RECOMMENDS:-} ]] || recommends=--install-recommends
    step "apt-$1" "installing $*" apt_update_and_install "$recommends" "$@"
}

apt_update_and_install() {
    # A failing third-party source is no reason to stop: what we need comes from the distribution.
    as_root timeout 300 apt-get update --quiet || true
    # Another apt at work (unattended upgrades) is waited for.
    as_root timeout 900 env DEBIAN_FRONTEND=noninteractive \
        apt-get install --yes --quiet -o DPkg::Lock::Timeout=300 "$@"
}

# need_command COMMAND PACKAGE: has the command, installing its Debian package where it can.
need_command() {
    command -v "$1" >/dev/null && return
    can_install || die "$1 is missing; install it (Debian and Ubuntu: apt-get install $2)"
    install_packages "$2"
}

# is_at_least WANTED FOUND: compares versions.
is_at_least() {
    [[ $(printf '%s\n' "$1" "$2" | sort --version-sort | head -n 1) == "$1" ]]
}

# ---- Rust on this machine

# Whether the server can be compiled here; a distribution's cargo is often too old, and rustup's
# comes without a linker.
can_compile() {
    local wanted found
    command -v cargo >/dev/null && command -v cc >/dev/null || return
    wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
    found=$(cargo --version | cut -d ' ' -f 2)
    is_at_least "$wanted" "$found"
}

server_binary() {
    printf '%s' "${CARGO_TARGET_DIR:-$PWD/target}/release/mcp-code-sandbox"
}
