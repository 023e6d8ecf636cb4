# Makes Docker usable: present and running, nothing happens; stopped, it is started; missing on Debian
# or Ubuntu, the distribution's own is installed. Everything else is one message that says what to do.
# Sourced after lib.sh.
# shellcheck shell=bash

readonly LOCAL_ENGINE=unix:///var/run/docker.sock
readonly ENGINE_LOG=$BUILD_STATE/logs/dockerd.log

make_docker_usable() {
    # The server takes DOCKER_HOST from .env, so what is built must go to the same engine.
    local address
    address=$(setting DOCKER_HOST)
    [[ -z $address ]] || export DOCKER_HOST=$address

    if ! engine_answers; then
        address=$(engine_address)
        is_local "$address" || die "no Docker engine answers at $address (from DOCKER_HOST or the Docker context): \
start it, or unset DOCKER_HOST to use this machine's engine"
        engine_is_installed || install_engine
        wait_for_engine 1 || start_engine
    fi
    # The docker client follows contexts; the server and its tests know only DOCKER_HOST.
    address=$(engine_address)
    is_local "$address" || export DOCKER_HOST=$address
    choose_builder
}

engine_answers() {
    timeout 15 docker version --format '{{.Server.Version}}' >/dev/null 2>&1
}

# What the docker client would talk to: DOCKER_HOST, or the chosen context's endpoint.
engine_address() {
    local address
    address=$(timeout 15 docker context inspect --format '{{.Endpoints.docker.Host}}' 2>/dev/null) ||
        address=${DOCKER_HOST:-${DOCKER_CONTEXT:-$LOCAL_ENGINE}}
    printf '%s' "$address"
}

is_local() {
    [[ ${1/unix:\/\/\/run/unix:\/\/\/var\/run} == "$LOCAL_ENGINE" ]]
}

# The client alone is no engine: it also comes with IDEs, cloud tools and CI images.
engine_is_installed() {
    command -v dockerd >/dev/null && command -v docker >/dev/null
}

install_engine() {
    can_install || die "Docker is not installed, and this script can do so only on Debian or Ubuntu with root or sudo: \
see https://docs.docker.com/engine/install/, then run this again"
    # With recommendations: apparmor's parser and the cgroup mounts are among them, and containers
    # do not start on machines that need them and lack them.
    WITH_RECOMMENDS=1 install_packages docker.io
    # Newer Debian has the client in a package of its own.
    command -v docker >/dev/null || install_packages docker-cli
}

start_engine() {
    require_socket_access
    can_be_root || die 'the Docker engine is not running: start it as root (systemctl start docker), then run this again'
    say 'starting Docker'
    if [[ -d /run/systemd/system ]]; then
        quietly docker-start as_root timeout 90 systemctl start docker
    else
        # The init script gives up where it may not raise limits; dockerd itself does not mind.
        as_root timeout 60 service docker start >/dev/null 2>&1 </dev/null || start_engine_in_background
    fi
    wait_for_engine 60 || die "Docker was started, but does not answer after 60 s: \
see journalctl -u docker, /var/log/docker.log or $PWD/$ENGINE_LOG"
    require_socket_access
}

# For machines without an init system: containers, minimal virtual machines, CI. It outlives this script.
start_engine_in_background() {
    mkdir -p "$(dirname "$ENGINE_LOG")"
    as_root setsid --fork dockerd >"$ENGINE_LOG" 2>&1 </dev/null
}

wait_for_engine() {
    local deadline=$((SECONDS + $1))
    until engine_answers; do
        ((SECONDS < deadline)) || return 1
        sleep 0.5
    done
}

# Membership in the group is as good as root, so it is the user's to grant, not ours.
require_socket_access() {
    local socket=${LOCAL_ENGINE#unix://}
    [[ ! -S $socket || -w $socket ]] || die "user $(id -un) may not use Docker: \
run \`sudo usermod -aG docker $(id -un)\`, log in again, then run this again"
}

# The client builds with BuildKit where its buildx plugin is there; without it a new client against
# an old engine refuses to build at all unless told to use the classic builder.
choose_builder() {
    [[ -n ${DOCKER_BUILDKIT:-} ]] || timeout 15 docker buildx version >/dev/null 2>&1 || export DOCKER_BUILDKIT=0
}

# ---- Compose: the plugin (v2) or the standalone program (1.29)

compose() {
    if compose_plugin_works; then docker compose "$@"; else docker-compose "$@"; fi
}

compose_name() {
    if compose_plugin_works; then printf 'docker compose'; else printf 'docker-compose'; fi
}

compose_plugin_works() {
    timeout 15 docker compose version >/dev/null 2>&1
}

make_compose_usable() {
    compose_plugin_works || command -v docker-compose >/dev/null && return
    can_install || die 'Docker Compose is missing: see https://docs.docker.com/compose/install/, then run this again'
    # Ubuntu has both, and its 1.29 does not run with its newer Pythons.
    if apt-cache show docker-compose-v2 >/dev/null 2>&1; then
        install_packages docker-compose-v2
    else
        install_packages docker-compose
    fi
}
