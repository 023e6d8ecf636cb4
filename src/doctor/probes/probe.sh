# What a run can see and do, as one line of JSON. Told apart from the host by nothing but looking.

status() {
    local name value
    while read -r name value _; do
        [[ $name != "$1:" ]] || printf %s "$value"
    done </proc/self/status
}

# First line of the first of these files that can be read.
first_line() {
    local file line
    for file; do
        if read -r line 2>/dev/null <"$file"; then
            printf %s "${line//[^a-z0-9 ]/}"
            return
        fi
    done 2>/dev/null
}

cpu_quota() {
    local both period
    both=$(first_line /sys/fs/cgroup/cpu.max)
    if [[ -z $both ]]; then
        both=$(first_line /sys/fs/cgroup/cpu/cpu.cfs_quota_us)
        period=$(first_line /sys/fs/cgroup/cpu/cpu.cfs_period_us)
        both=${both:+$both $period}
    fi
    printf %s "$both"
}

root_read_only() {
    local point options found
    while read -r _ point _ options _; do
        [[ $point != / ]] || found=$options
    done </proc/self/mounts
    if [[ ,$found, == *,ro,* ]]; then printf true; else printf false; fi
}

writable() {
    local directory found=()
    for directory in / /etc /usr /var /proc/sys /sys/fs/cgroup; do
        if (: >"$directory/doctor-probe") 2>/dev/null; then found+=("\"$directory\""); fi
    done
    local IFS=,
    printf %s "${found[*]}"
}

interfaces() {
    local name found=()
    while IFS=': ' read -r name _; do
        [[ $name == Inter-* || $name == face* ]] || found+=("\"${name//[^a-zA-Z0-9._-]/}\"")
    done </proc/net/dev
    local IFS=,
    printf %s "${found[*]}"
}

now_ms() { now=$((${EPOCHREALTIME//[.,]/} / 1000)); }

attempt() {
    local what=$1 reached=false started
    shift
    now_ms; started=$now
    if timeout 3 "$@" >/dev/null 2>&1; then reached=true; fi
    now_ms
    printf '{"what":"%s","reached":%s,"ms":%s}' "$what" "$reached" $((now - started))
}

# Addresses set aside for documentation: nobody is there, but a network would try.
attempts() {
    attempt TCP bash -c ': </dev/tcp/192.0.2.1/80'
    printf ,
    attempt UDP bash -c 'echo >/dev/udp/192.0.2.1/53'
    printf ,
    attempt IPv6 bash -c ': </dev/tcp/2001:db8::1/80'
    printf ,
    attempt DNS getent hosts example.com
}

# Clock ticks of 10 ms that this shell has computed.
cpu_ticks() {
    local stat
    read -r stat </proc/$$/stat
    read -ra stat <<<"${stat##*) }"
    ticks=$((stat[11] + stat[12]))
}

# Share of one core that a busy loop of a second gets.
cpu_percent() {
    local began from
    now_ms; began=$now
    cpu_ticks; from=$ticks
    while now_ms; ((now - began < 1000)); do :; done
    cpu_ticks
    percent=$(((ticks - from) * 1000 / (now - began)))
}

from_host=
read -r from_host </data/from-host
printf '%s\n' "${from_host//[^a-zA-Z0-9-]/}" >/data/from-run
cpu_percent
printf '{"uid":%s,"capEff":"%s","capBnd":"%s","noNewPrivs":"%s","seccomp":"%s",' \
    "$(status Uid)" "$(status CapEff)" "$(status CapBnd)" "$(status NoNewPrivs)" "$(status Seccomp)"
printf '"rootReadOnly":%s,"writable":[%s],"fromHost":"%s",' "$(root_read_only)" "$(writable)" "${from_host//[^a-zA-Z0-9-]/}"
printf '"cpuQuota":"%s","cpuPercent":%s,"interfaces":[%s],"attempts":[%s],' \
    "$(cpu_quota)" "$percent" "$(interfaces)" "$(attempts)"
printf '"pidsMax":"%s"}\n' "$(first_line /sys/fs/cgroup/pids.max /sys/fs/cgroup/pids/pids.max)"
