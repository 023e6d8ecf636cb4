#!/usr/bin/env bash
# From a fresh checkout to a serving server. Safe to run again: later starts do only what is missing.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")"
# shellcheck source=scripts/lib.sh
source scripts/lib.sh
# shellcheck source=scripts/docker.sh
source scripts/docker.sh

usage() {
    cat <<'USAGE'
usage: ./start.sh

Starts the server: writes .env with fresh secrets if there is none, makes Docker usable (installing it
on Debian and Ubuntu), builds what is missing or older than its sources, and serves.

With cargo on this machine the server runs in the foreground; Ctrl-C stops it.
Without cargo it is built inside its image and runs in the background, through docker-compose.yml.

Settings are in .env; the variables of the environment win. See .env.example.
USAGE
}

# Exists from the writing of .env until its token was shown, even if the build in between failed.
readonly UNSEEN_TOKEN=$BUILD_STATE/unseen-token

main() {
    case ${1:-} in
    '') ;;
    --help | -h)
        usage
        exit
        ;;
    *)
        usage >&2
        exit 2
        ;;
    esac
    write_settings
    if can_compile; then serve_here; else serve_in_container; fi
}

serve_here() {
    refuse_taken "$(setting MCP_HTTP_ADDR :8080)"
    make_docker_usable
    ./build.sh runners server
    show_token_once
    # In this shell's place, so that signals reach it.
    # Large blocks go back to the system when they are freed: glibc otherwise keeps them once there were some.
    exec env MALLOC_MMAP_THRESHOLD_="${MALLOC_MMAP_THRESHOLD_:-262144}" "$(server_binary)" serve
}

serve_in_container() {
    local address port
    address=$(setting MCP_HTTP_ADDR :8080)
    # The compose files' own variable, written as Docker publishes: 8080 or 127.0.0.1:8080.
    port=$(setting HTTP_PORT "${address#:}")
    address=$port
    [[ $port == *:* ]] || address=:$port

    make_docker_usable
    make_compose_usable
    is_up || refuse_taken "$address"
    ./build.sh runners image
    keep_host_path
    export HTTP_PORT=$port
    quietly compose-up compose up --detach
    wait_until_ready "$address"
    show_token_once
    say "mcp-code-sandbox serves at $(setting PUBLIC_BASE_URL http://localhost:8080), in the background and after reboots
  logs: $(compose_name) logs --follow
  stop: $(compose_name) down"
}

# ---- .env

write_settings() {
    [[ ! -e .env ]] || return 0
    local token secret
    token=$(random_hex)
    secret=$(random_hex)
    mkdir -p "$BUILD_STATE"
    # Readable by nobody else from the first byte on, and never half written.
    (
        umask 077
        sed -e "s/^MCP_API_TOKEN=.*/MCP_API_TOKEN=$token/" -e "s/^FILE_SECRET=.*/FILE_SECRET=$secret/" .env.example >.env.new
        : >"$UNSEEN_TOKEN"
    )
    mv .env.new .env
}

# 256 bits.
random_hex() {
    head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n'
}

show_token_once() {
    [[ -e $UNSEEN_TOKEN ]] || return 0
    local url token
    url=$(setting PUBLIC_BASE_URL http://localhost:8080)
    url=${url%/}/mcp
    token=$(setting MCP_API_TOKEN)
    cat <<HELLO

Your token, shown this once (it is kept in .env): $token

Connect Claude Code:
  claude mcp add --transport http code-sandbox $url --header "Authorization: Bearer $token"

Or try it with curl:
  curl -s $url -H "Authorization: Bearer $token" -H "Content-Type: application/json" \\
    -d '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"run_code","arguments":{"language":"python","code":"print(6 * 7)"}}}'

HELLO
    rm "$UNSEEN_TOKEN"
}

# Compose mounts the workspaces by a path that the engine understands; ./data is none. Kept in .env, so
# that compose by hand finds the same files.
keep_host_path() {
    [[ -z $(setting SANDBOX_HOST_PATH) ]] || return 0
    printf '\n# Added by start.sh for Compose.\nSANDBOX_HOST_PATH=%s\n' "$PWD/data" >>.env
}

# ---- is it up?

# Before anything is built or replaced under a running server.
refuse_taken() {
    local answer
    answer=$(answer_from "$1") || return 0
    if [[ $answer == 200 ]]; then
        die "a server is running on $1 already and answers well, so nothing was done. \
Stop that one first, or choose another port (MCP_HTTP_ADDR and PUBLIC_BASE_URL in .env)"
    fi
    die "another program listens on $1: \
stop it, or choose another port (MCP_HTTP_ADDR and PUBLIC_BASE_URL in .env)"
}

# answer_from [HOST]:PORT: the status of GET /healthz, empty if what listens there speaks no HTTP;
# fails if nothing listens.
answer_from() {
    local host=${1%:*} port=${1##*:}
    host=${host//[][]/}
    # All interfaces include loopback.
    [[ -n $host && $host != 0.0.0.0 && $host != :: ]] || host=127.0.0.1
    # shellcheck disable=SC2016  # parameters of the inner shell
    timeout 5 bash -c '
        exec 3<>"/dev/tcp/$0/$1" || exit 1
        printf "GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n" >&3
        read -r -t 3 _ status _ <&3
        printf "%s" "${status:-}"
        exit 0' "$host" "$port" 2>/dev/null
}

# Whether Compose's container of this checkout is running.
is_up() {
    [[ -n $(timeout 30 docker ps --quiet --filter "label=com.docker.compose.project.working_dir=$PWD" \
        --filter label=com.docker.compose.service=server) ]]
}

wait_until_ready() {
    local deadline=$((SECONDS + 60))
    until [[ $(answer_from "$1") == 200 ]]; do
        ((SECONDS < deadline)) || die "the server does not answer after 60 s: see $(compose_name) logs"
        sleep 0.2
    done
}

main "$@"
