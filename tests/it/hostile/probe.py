"""Tries what a program in a sandbox must not be able to do and prints what happened as JSON."""

import ctypes
import errno
import json
import os
import re
import socket
import stat
import time

libc = ctypes.CDLL(None, use_errno=True)


def outcome(action):
    """The name of the error that `action` met, or what it returned."""
    ctypes.set_errno(0)
    try:
        result = action()
    except OSError as error:
        return errno.errorcode.get(error.errno, type(error).__name__)
    except ValueError:
        return "EINVAL"  # What resource.setrlimit makes of EPERM.
    if result == -1 and ctypes.get_errno():
        return errno.errorcode[ctypes.get_errno()]
    return f"allowed: {result!r}"


def timed(action):
    started = time.monotonic()
    return outcome(action), time.monotonic() - started


def writable():
    """Directories and files, on any mount, that this user may write to."""
    found = set()
    for directory, _, names in os.walk("/"):
        if re.match(r"/(proc|data|tmp)(/|$)", directory):
            continue
        for path in [directory, *(os.path.join(directory, name) for name in names)]:
            mode = os.lstat(path).st_mode
            if (stat.S_ISREG(mode) or stat.S_ISDIR(mode)) and os.access(path, os.W_OK):
                found.add(path)
    return sorted(found)


def append(path):
    def action():
        with open(path, "ab", buffering=0) as file:
            file.write(b"x\n")
    return action


def udp():
    client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    client.sendto(b"x", ("192.0.2.1", 53))


def tcp(address, family=socket.AF_INET):
    def action():
        client = socket.socket(family)
        client.settimeout(20)
        client.connect(address)
    return action


def resolve():
    try:
        socket.getaddrinfo("example.com", 80)
    except socket.gaierror as error:
        raise OSError(errno.ENETUNREACH, str(error)) from None


CLONE = {"user": 0x10000000, "mount": 0x20000, "pid": 0x20000000, "net": 0x40000000, "cgroup": 0x2000000, "ipc": 0x8000000}

writes = [
    "/hostile", "/usr/hostile", "/usr/bin/env", "/etc/passwd", "/etc/hosts", "/etc/resolv.conf", "/etc/hostname",
    "/etc/ld.so.preload", "/opt/hostile", "/var/tmp/hostile", "/run/hostile", "/home/hostile", "/root/hostile",
    "/dev/hostile", "/boot/hostile", "/sys/hostile", "/sys/kernel/uevent_helper", "/sys/fs/cgroup/hostile",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/cgroup.procs",
    "/sys/fs/cgroup/memory/release_agent", "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname",
    "/proc/sys/vm/overcommit_memory", "/proc/sysrq-trigger", "/proc/irq/0/smp_affinity", "/proc/1/mem",
    "/proc/1/oom_score_adj", "/proc/kcore", "/dev/mem", "/dev/kmsg", "/dev/sda", "/dev/vda", "/dev/fuse",
]

# Not here: tracing init, which Docker's default filter allows. It is the container's own, runs as the same user and
# holds nothing; SECURITY.md says so.
calls = {
    "mount": lambda: libc.mount(b"none", b"/tmp", b"tmpfs", 0, None),
    "remount": lambda: libc.mount(b"none", b"/", None, 32, None),
    "bind": lambda: libc.mount(b"/proc", b"/tmp", None, 4096, None),
    "umount": lambda: libc.umount2(b"/data", 2),
    "pivot_root": lambda: libc.syscall(155, b"/tmp", b"/tmp"),
    "chroot": lambda: os.chroot("/tmp"),
    **{f"unshare {name}": lambda flag=flag: libc.unshare(flag) for name, flag in CLONE.items()},
    "clone in a user namespace": lambda: libc.syscall(56, CLONE["user"] | 17, 0, 0, 0, 0),
    "setns": lambda: libc.setns(os.open("/proc/self/ns/net", os.O_RDONLY), 0),
    "character device": lambda: os.mknod("/data/null", 0o600 | stat.S_IFCHR, os.makedev(1, 3)),
    "block device": lambda: os.mknod("/tmp/disk", 0o600 | stat.S_IFBLK, os.makedev(8, 0)),
    "raw socket": lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP),
    "raw IPv6 socket": lambda: socket.socket(socket.AF_INET6, socket.SOCK_RAW, 58),
    "packet socket": lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW),
    "low port": lambda: socket.socket().bind(("127.0.0.1", 80)) if low_ports_are_guarded() else refuse(),
    "become root": lambda: os.setuid(0),
    "join root's group": lambda: os.setgroups([0]),
    "give a file to root": lambda: os.chown("/data", 0, 0),
    "raise priority": lambda: os.setpriority(os.PRIO_PROCESS, 0, -5),
    "escape the OOM killer": lambda: os.write(os.open("/proc/self/oom_score_adj", os.O_WRONLY), b"-1000"),
    "raise the core limit": lambda: __import__("resource").setrlimit(4, (1, 1)),
    "raise the file limit": lambda: __import__("resource").setrlimit(7, (1 << 20, 1 << 20)),
    "set the clock": lambda: libc.clock_settime(0, ctypes.create_string_buffer(16)),
    "set the host's name": lambda: libc.sethostname(b"x", 1),
    "reboot": lambda: libc.reboot(0x89ABCDEF),
    "load a module": lambda: libc.syscall(175, b"", 0, b""),
    "load a kernel": lambda: libc.syscall(246, 0, 0, 0, 0, 0),
    "bpf": lambda: libc.syscall(321, 0, ctypes.create_string_buffer(128), 128),
    "perf": lambda: libc.syscall(298, ctypes.create_string_buffer(128), 0, -1, -1, 0),
    "keyring": lambda: libc.syscall(248, b"user", b"x", b"x", 1, -3),
    "open by handle": lambda: libc.syscall(304, -100, ctypes.create_string_buffer(64), 0),
    "userfaultfd": lambda: libc.syscall(323, 0),
    "kernel log": lambda: libc.klogctl(3, ctypes.create_string_buffer(64), 64),
    "swap": lambda: libc.swapon(b"/tmp/x", 0),
    "accounting": lambda: libc.acct(b"/tmp/x"),
    "vm86 and ioports": lambda: libc.ioperm(0, 1, 1),
}


def low_ports_are_guarded():
    with open("/proc/sys/net/ipv4/ip_unprivileged_port_start") as file:
        return int(file.read()) > 80


def refuse():
    raise OSError(errno.EPERM, "Docker opens low ports inside the container's own network")


networks = {
    "TCP": tcp(("192.0.2.1", 80)),
    "TCP to the metadata service": tcp(("169.254.169.254", 80)),
    "TCP to the host": tcp(("172.17.0.1", 2375)),
    "TCP to loopback": tcp(("127.0.0.1", 2375)),
    "UDP": udp,
    "DNS": resolve,
    "IPv6": tcp(("2001:db8::1", 80), socket.AF_INET6),
    "IPv6 loopback": tcp(("::1", 2375), socket.AF_INET6),
    "IPv6 link local": tcp(("fe80::1", 80, 0, 1), socket.AF_INET6),
    "abstract socket": tcp("\0/containerd-shim", socket.AF_UNIX),
}


def mounts():
    """Mount points of what is no pseudo file system: these come from a disk of the host."""
    with open("/proc/self/mountinfo") as file:
        lines = [line.split(" - ") for line in file]
    pseudo = "proc", "tmpfs", "devpts", "sysfs", "cgroup", "cgroup2", "mqueue", "overlay"
    return sorted(left.split()[4] for left, right in lines if right.split()[0] not in pseudo)


def status():
    with open("/proc/self/status") as file:
        return dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)


def everything_readable_of_processes():
    texts = []
    for process in filter(str.isdigit, os.listdir("/proc")):
        for name in "environ", "cmdline", "mountinfo", "cgroup", "comm":
            try:
                with open(f"/proc/{process}/{name}", "rb") as file:
                    texts.append(file.read().decode(errors="replace"))
            except OSError:
                pass
    return "\n".join(texts)


print(json.dumps({
    "status": status(),
    "writes": {path: outcome(append(path)) for path in writes},
    "writable": writable(),
    "calls": {name: outcome(action) for name, action in calls.items()},
    "network": {name: timed(action) for name, action in networks.items()},
    "interfaces": os.listdir("/sys/class/net"),
    "mounts": mounts(),
    "devices": sorted(os.listdir("/dev")),
    "sockets": [path for path in ("/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock", "/run/podman/podman.sock") if os.path.lexists(path)],
    "processes": sorted(int(name) for name in os.listdir("/proc") if name.isdigit()),
    "environment": dict(os.environ),
    "told": everything_readable_of_processes(),
    "hostname": socket.gethostname(),
}))
