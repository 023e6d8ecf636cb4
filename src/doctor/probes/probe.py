# What a run can see and do, as one line of JSON. Told apart from the host by nothing but looking.
import json, signal, socket, time


def text(*names):
    """What the first of these files that can be read holds."""
    for name in names:
        try:
            with open(name) as file:
                return file.read().strip()
        except OSError:
            pass
    return ""


def status(name):
    fields = dict(line.split(":", 1) for line in text("/proc/self/status").splitlines())
    return fields.get(name, "").split()[0] if fields.get(name, "").split() else ""


def cpu_quota():
    both = text("/sys/fs/cgroup/cpu.max")
    v1 = [text(f"/sys/fs/cgroup/cpu/cpu.cfs_{name}_us") for name in ("quota", "period")]
    return both or " ".join(v1).strip()


def root_read_only():
    mounts = [line.split() for line in text("/proc/self/mounts").splitlines()]
    return "ro" in [mount[3] for mount in mounts if mount[1] == "/"][-1].split(",")


def writes(directory):
    try:
        with open(f"{directory}/doctor-probe", "w"):
            return True
    except OSError:
        return False


def attempt(what, action):
    def give_up(*_):
        raise TimeoutError

    signal.signal(signal.SIGALRM, give_up)
    signal.alarm(3)
    started = time.monotonic()
    try:
        action()
        reached = True
    except OSError:
        reached = False
    signal.alarm(0)
    return {"what": what, "reached": reached, "ms": int((time.monotonic() - started) * 1000)}


def connect(family, kind, address):
    def action():
        with socket.socket(family, kind) as connection:
            connection.settimeout(3)
            connection.connect(address)

    return action


def attempts():
    """Addresses set aside for documentation: nobody is there, but a network would try."""
    return [
        attempt("TCP", connect(socket.AF_INET, socket.SOCK_STREAM, ("192.0.2.1", 80))),
        attempt("UDP", connect(socket.AF_INET, socket.SOCK_DGRAM, ("192.0.2.1", 53))),
        attempt("IPv6", connect(socket.AF_INET6, socket.SOCK_STREAM, ("2001:db8::1", 80))),
        attempt("DNS", lambda: socket.getaddrinfo("example.com", 80)),
    ]


def cpu_percent():
    """Share of one core that a busy loop of a second gets."""
    began, used = time.monotonic(), time.process_time()
    while time.monotonic() - began < 1:
        pass
    return int(100 * (time.process_time() - used) / (time.monotonic() - began))


from_host = text("/data/from-host")
with open("/data/from-run", "w") as file:
    file.write(from_host)
print(json.dumps({
    "uid": int(status("Uid")),
    "capEff": status("CapEff"),
    "capBnd": status("CapBnd"),
    "noNewPrivs": status("NoNewPrivs"),
    "seccomp": status("Seccomp"),
    "rootReadOnly": root_read_only(),
    "writable": [name for name in ("/", "/etc", "/usr", "/var", "/proc/sys", "/sys/fs/cgroup") if writes(name)],
    "fromHost": from_host,
    "cpuQuota": cpu_quota(),
    "cpuPercent": cpu_percent(),
    "interfaces": [line.split(":")[0].strip() for line in text("/proc/net/dev").splitlines()[2:]],
    "attempts": attempts(),
    "pidsMax": text("/sys/fs/cgroup/pids.max", "/sys/fs/cgroup/pids/pids.max"),
}), flush=True)
