"""Reads one request, runs its program, reports how it ended: runner protocol 2, see ../README.md.

The interpreter that loads the packages while it waits is the one that runs the program. Nothing the program does,
short of ending the process, may keep the report from being written: hence the names bound here, before it starts.
"""

import builtins
import fcntl
import gc
import os
import select
import sys

# json and signal would pull in re and enum, half of a bare interpreter's start: their C halves suffice.
from _json import make_scanner
from _signal import SIG_DFL, SIGINT, SIGKILL, signal
from posix import O_RDONLY, _exit, close, fstat, getpid, kill, read, set_blocking, write
from posix import open as open_file
from resource import RLIMIT_NOFILE, RUSAGE_CHILDREN, RUSAGE_SELF, getrlimit, getrusage

import preload
from program import Program

# Functions resolve built-in names here, whatever the program does to the real ones.
__builtins__ = dict(vars(builtins))

# Long enough for a request that is sent as the container starts: it is not to wait for anything to be loaded.
GRACE_MS = 100
# Above what programs open, below the 1,024 a program may not exceed by default.
FIRST_RESERVED = 1000
FONT_CACHE = "/opt/runner/matplotlib"
# The kernel's highest count of the container's memory, page cache and tmpfs included: what its limit is measured
# against. In a container that waited it covers the loading, too. Control groups v2, then v1.
MEMORY_PEAKS = "/sys/fs/cgroup/memory.peak", "/sys/fs/cgroup/memory/memory.max_usage_in_bytes"


def main():
    output, errors = Stream(1), Stream(2)
    owner = getpid()
    # Everywhere but in a container, where our parent is its init, "every process" would be all of the developer's own.
    contained = os.getppid() <= 1
    offer_font_cache()
    wait()
    cpu_before_ms = cpu_ms()
    token, program = accept()

    status = 1
    try:
        status = program.run()
        # 120 is the interpreter's word for lost output.
        status = 120 if not program.end() and status >= 0 else status
    finally:
        if status < 0:
            signal(SIGINT, SIG_DFL)
            kill(getpid(), -status)
            # Still here: an init process, where the container has none of its own.
            status = 128 - status
        # A fork of this process that ran on to the end ends here, too, but has nothing to report.
        if getpid() == owner:
            if contained:
                kill_others()
            usage = cpu_ms() - cpu_before_ms, memory_peak()
            output.write(b"\x1e%s\n" % token)
            errors.write(b'\x1e%s {"exit":%d,"cpuMs":%d,"peakBytes":%d}\n' % (token, status, *usage))
        _exit(status)


class Stream:
    """A private copy of one of the streams the process started with."""

    def __init__(self, descriptor):
        limit, _ = getrlimit(RLIMIT_NOFILE)
        self.descriptor = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, min(FIRST_RESERVED, limit - 8))
        self.identity = self.identify()

    def identify(self):
        status = fstat(self.descriptor)
        return status.st_dev, status.st_ino

    def write(self, data):
        try:
            # A program that closed all it could may since have opened a file of its own under this number.
            if self.identify() == self.identity:
                set_blocking(self.descriptor, True)
                while data:
                    data = data[write(self.descriptor, data) :]
        except OSError:
            pass  # Nobody listens. The exit status of the container says the rest.


def offer_font_cache():
    """Put the font list made with the image where matplotlib looks for it: in a directory it could write to."""
    directory = os.environ["MPLCONFIGDIR"]
    os.mkdir(directory)
    for name in os.listdir(FONT_CACHE):
        os.symlink(f"{FONT_CACHE}/{name}", f"{directory}/{name}")


def wait():
    """Load packages until there is a request."""
    requests = select.poll()
    requests.register(0, select.POLLIN)
    if requests.poll(GRACE_MS):
        return
    gc.disable()
    for _ in preload.steps():
        if requests.poll(0):
            break
    # The collector need not walk what is loaded, neither now that it counts so many new objects nor in the program.
    gc.freeze()
    gc.enable()
    requests.poll()


def accept():
    """Read the request; returns its token and its program."""
    with open(0, "rb", closefd=False) as stdin:
        header = stdin.readline()
        if not header:
            _exit(0)  # The server has no use for this container any more.
        request, _ = make_scanner(JsonDefaults)(header.decode(), 0)
        source = stdin.read(request["bytes"])
    del sys.modules["preload"], sys.modules["program"]
    return request["token"].encode(), Program(source, request["args"], request["env"])


class JsonDefaults:
    """What json.JSONDecoder asks of the scanner."""

    strict = True
    object_hook = object_pairs_hook = None
    parse_float, parse_int, parse_constant = float, int, None


def kill_others():
    try:
        kill(-1, SIGKILL)
    except OSError:
        pass  # There are none.


def cpu_ms():
    """Time spent by this process and the children it waited for."""
    usages = getrusage(RUSAGE_SELF), getrusage(RUSAGE_CHILDREN)
    return round(sum(usage.ru_utime + usage.ru_stime for usage in usages) * 1000)


def memory_peak():
    for path in MEMORY_PEAKS:
        try:
            descriptor = open_file(path, O_RDONLY)
            digits = read(descriptor, 32)
            close(descriptor)
        except OSError:
            continue
        return int(digits)
    # Of this process alone.
    return getrusage(RUSAGE_SELF).ru_maxrss * 1024


main()
