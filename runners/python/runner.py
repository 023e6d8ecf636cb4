"""Reads one request, runs its program, tells supervise.py how it ended: runner protocol 2, see ../README.md.

The interpreter that loads the packages while it waits is the one that runs the program. Nothing the program does,
short of ending the process, may keep it from being told: hence the names bound here, before it starts.
"""

import builtins
import fcntl
import gc
import os
import select
import sys

# json and signal would pull in re and enum, half of a bare interpreter's start: their C halves suffice.
from _json import make_scanner
from _signal import SIG_DFL, SIGINT, SIGSTOP, signal
from posix import _exit, close, fstat, getpid, kill, write
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


def main(descriptor):
    supervisor = Supervisor(descriptor)
    owner = getpid()
    offer_font_cache()
    wait()
    cpu_ms_before, _ = usage()
    request, source = accept()
    supervisor.tell(b"%s %d\n" % (request["token"].encode(), cpu_ms_before))
    program = Program(source, request["args"], request["env"])

    status = 1
    try:
        status = program.run()
        # 120 is the interpreter's word for lost output.
        status = 120 if not program.end() and status >= 0 else status
    finally:
        if status < 0:
            signal(SIGINT, SIG_DFL)
            kill(getpid(), -status)
            # Still here: the program blocked the signal.
            status = 128 - status
        # A fork of this process that ran on to the end ends here, too, but has nothing to tell.
        # What the program wrote to the pipe, if anything, need not have ended with a line.
        if getpid() == owner and supervisor.tell(b"\nend %d %d %d\n" % (status, *usage())):
            # Unlike any other way to wait, this stops the threads that are left. A signal could wake it up.
            while True:
                kill(owner, SIGSTOP)
        _exit(status)


class Supervisor:
    """The pipe to supervise.py, out of the program's way."""

    def __init__(self, descriptor):
        limit, _ = getrlimit(RLIMIT_NOFILE)
        self.descriptor = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, min(FIRST_RESERVED, limit - 8))
        self.identity = self.identify()
        close(descriptor)

    def identify(self):
        status = fstat(self.descriptor)
        return status.st_dev, status.st_ino

    def tell(self, line):
        """Returns whether that was possible. If not, the exit status alone tells."""
        try:
            # A program that closed all it could may since have opened a file of its own under this number.
            return self.identify() == self.identity and write(self.descriptor, line) == len(line)
        except OSError:
            return False


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
    # Packages look for settings in the working directory, which may hold what an earlier run left there.
    workspace = os.getcwd()
    os.chdir("/")
    gc.disable()
    for _ in preload.steps():
        if requests.poll(0):
            break
    # The collector need not walk what is loaded, neither now that it counts so many new objects nor in the program.
    gc.freeze()
    gc.enable()
    os.chdir(workspace)
    requests.poll()


def accept():
    """Read the request and the source that follows it."""
    with open(0, "rb", closefd=False) as stdin:
        header = stdin.readline()
        if not header:
            _exit(0)  # The server has no use for this container any more.
        request, _ = make_scanner(JsonDefaults)(header.decode(), 0)
        source = stdin.read(request["bytes"])
    del sys.modules["preload"], sys.modules["program"], sys.modules["runner"]
    return request, source


class JsonDefaults:
    """What json.JSONDecoder asks of the scanner."""

    strict = True
    object_hook = object_pairs_hook = None
    parse_float, parse_int, parse_constant = float, int, None


def usage():
    """Milliseconds spent by this process and the children it waited for; its largest resident memory."""
    own, children = getrusage(RUSAGE_SELF), getrusage(RUSAGE_CHILDREN)
    seconds = own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime
    return round(seconds * 1000), own.ru_maxrss * 1024
