"""Runs the runner as its only child and reports how the program ended: runner protocol 2, see ../README.md.

A program can end without leaving anybody to report it: by os._exit(), exec, a signal, or the kernel for want of memory.
From here each of them is a wait status.

The fork comes before anything is loaded, and this side loads nothing: what the two share is small, and little of it is
copied. A program that ends as programs do must not be waited for, since tearing down its memory takes milliseconds. It
stops itself instead (SIGSTOP) once it has told its exit status, so that one waitpid() notices every kind of end.
"""

from _signal import SIG_DFL, SIG_IGN, SIGCHLD, SIGKILL, signal, valid_signals
from posix import (
    O_CLOEXEC,
    O_NONBLOCK,
    O_RDONLY,
    WIFSTOPPED,
    WUNTRACED,
    _exit,
    close,
    fork,
    getpid,
    getppid,
    kill,
    pipe2,
    read,
    set_blocking,
    waitpid,
    waitstatus_to_exitcode,
    write,
)
from posix import open as open_file

# What the container's control group knows: v2, then v1. How often the kernel killed a process for want of memory:
OOM_COUNTERS = "/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"
# and its highest count of the memory, page cache and tmpfs included: what the limit is measured against. In a container
# that waited it covers the loading, too.
MEMORY_PEAKS = "/sys/fs/cgroup/memory.peak", "/sys/fs/cgroup/memory/memory.max_usage_in_bytes"


def supervise(child, reader):
    # Everywhere but in a container, where our parent is its init, "every process" would be all of the developer's own.
    contained = getppid() <= 1
    # A signal to the process group is for the program. If it dies of it, so do we.
    for number in valid_signals() - {SIGCHLD}:
        try:
            signal(number, SIG_IGN)
        except OSError:
            pass  # SIGKILL and SIGSTOP.
    oom_kills_before = oom_kills()

    lines, status, cpu_ms, peak = wait(child, reader)
    oom = status == -SIGKILL and oom_kills() > oom_kills_before
    if status < 0 and not oom:
        die(-status)
    if oom:
        status = 128 + SIGKILL
    try:
        kill(-1 if contained else child, SIGKILL)
    except OSError:
        pass  # There are none.
    # Without a request there is nobody to report to.
    if lines:
        token, cpu_ms_before = lines[0].split()
        report = status, b',"oom":true' if oom else b"", cpu_ms - int(cpu_ms_before), memory_peak() or peak
        write_all(1, b"\x1e%s\n" % token)
        write_all(2, b'\x1e%s {"exit":%d%s,"cpuMs":%d,"peakBytes":%d}\n' % (token, *report))
    _exit(status)


def wait(child, reader):
    """Wait for the program's end; returns what it told, its status as subprocess has it, CPU time, resident memory.

    It tells two lines: with its request "<token> <CPU milliseconds so far>", and "end" with what is returned here.
    """
    told = b""
    while True:
        _, status = waitpid(child, WUNTRACED)
        try:
            told += read(reader, 1 << 16)
        except BlockingIOError:
            pass
        lines = told.splitlines()
        if lines and lines[-1].startswith(b"end "):
            return lines, *map(int, lines[-1].split()[1:])
        if not WIFSTOPPED(status):
            # Not before it is needed: loading it takes longer than all the rest.
            from resource import RUSAGE_CHILDREN, getrusage

            usage = getrusage(RUSAGE_CHILDREN)
            cpu_ms = round((usage.ru_utime + usage.ru_stime) * 1000)
            return lines, waitstatus_to_exitcode(status), cpu_ms, usage.ru_maxrss * 1024
        # Stopped for a reason of its own.


def die(number):
    """Die of the same signal as the program: the engine's view of the container decides what it was."""
    try:
        signal(number, SIG_DFL)
    except OSError:
        pass  # SIGKILL.
    kill(getpid(), number)
    # Still here: an init process, where the container has none of its own.
    _exit(128 + number)


def oom_kills():
    for line in first_readable(OOM_COUNTERS).splitlines():
        if line.startswith(b"oom_kill "):
            return int(line.split()[1])
    return 0


def memory_peak():
    return int(first_readable(MEMORY_PEAKS) or 0)


def first_readable(paths):
    for path in paths:
        try:
            descriptor = open_file(path, O_RDONLY)
            content = read(descriptor, 4096)
            close(descriptor)
        except OSError:
            continue
        return content
    return b""


def write_all(descriptor, data):
    try:
        # The flag belongs to the pipe, which the program shared and may have set.
        set_blocking(descriptor, True)
        while data:
            data = data[write(descriptor, data) :]
    except OSError:
        pass  # Nobody listens. The exit status of the container says the rest.


# Neither end ever blocks: the program may fill the pipe, and a process it leaves behind may hold it open.
reader, writer = pipe2(O_CLOEXEC | O_NONBLOCK)
child = fork()
if child:
    close(writer)
    supervise(child, reader)
else:
    close(reader)
    # Not in a function: another frame below the program would count against its recursion limit.
    import runner

    runner.main(writer)
