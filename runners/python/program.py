"""The program: one source text, run as `python3 main.py` would run it, though in an interpreter that has run before.

From its first line to the destruction of its last object a program sees no difference but these: packages may be
loaded already, stdout is line buffered, and a handful of frames it cannot find count against its recursion limit.
compare.py holds us to it. What runs after the program relies on nothing the program can replace: hence the names
bound here, before it starts.
"""

import atexit
import builtins
import gc
import os
import sys
from _frozen_importlib_external import SourceFileLoader
from _signal import SIG_IGN, SIGCHLD, SIGINT, signal, valid_signals

from greenlet import greenlet

# Functions resolve built-in names here, whatever the program does to the real ones.
__builtins__ = dict(vars(builtins))

# On the tmpfs: tracebacks, inspect.getsource and spawned workers read the source, /data shows the user's files only.
PATH = "/tmp/main.py"
# Where sandbox.install puts packages, and pip --user within a program.
USER_BASE = "/data/.packages/python"
USER_SITE = f"{USER_BASE}/lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"

modules = sys.modules
# What every interpreter has loaded when its program starts, but for a few of the runner's.
bare = frozenset(modules)
display = sys.__excepthook__
set_trace, set_profile = sys.settrace, sys.setprofile
get_recursion_limit, set_recursion_limit = sys.getrecursionlimit, sys.setrecursionlimit
run_exit_functions = atexit._run_exitfuncs
collect_garbage, collector_callbacks = gc.collect, gc.callbacks


class Program:
    """One program and what became of it."""

    def __init__(self, source, arguments, environment):
        """Make the process look as if it had been started for this program."""
        null = os.open("/dev/null", os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        with open(PATH, "wb", buffering=0) as file:
            file.write(source)
        self.source = source

        os.environ.setdefault("PYTHONUSERBASE", USER_BASE)
        os.environ.update(environment)
        if "TZ" in environment:
            __import__("time").tzset()
        sys.argv = [PATH, *arguments]
        sys.orig_argv[1:] = sys.argv
        sys.path[:1] = [os.getcwd(), *filter(None, environment.get("PYTHONPATH", "").split(":"))]
        # Not left to the interpreter's own start: a waiting container would run the .pth files of the conversation.
        if os.path.isdir(USER_SITE):
            __import__("site").addsitedir(USER_SITE)
        # A program that is killed, by its time limit or for its memory, keeps the lines it printed.
        sys.stdout.reconfigure(line_buffering=True)

        main = type(sys)("__main__")
        main.__loader__ = SourceFileLoader("__main__", PATH)
        main.__annotations__ = {}
        main.__builtins__ = builtins
        main.__file__ = PATH
        main.__cached__ = None
        modules["__main__"] = main
        forget_shadowed()
        self.loaded = modules.keys() - {"__main__"}

    def run(self):
        """Run the source; returns the exit status as subprocess has it, negative for death by a signal."""
        try:
            code = compiled(self.source)
        except BaseException as error:
            return uncaught(error.with_traceback(None))
        error = call(exec, code, vars(modules["__main__"]))
        return 0 if error is None else uncaught(error)

    def end(self):
        """Do what the interpreter does at its end; returns whether all output was written."""
        threading = modules.get("threading")
        error = call(threading._shutdown) if threading else None
        if error is not None:
            display(type(error), error, error.__traceback__)
        call(run_exit_functions)
        written = flush()
        # An alarm left behind, or SIGPIPE set to its default, must not cut the report short. Children are still awaited.
        for number in valid_signals() - {SIGCHLD}:
            try:
                signal(number, SIG_IGN)
            except OSError:
                pass  # SIGKILL and SIGSTOP.
        self.release()
        return written

    def release(self):
        """Destroy the program's objects: what they do then belongs to it, as writing files that were left open."""
        collector_callbacks.clear()
        # Brings what the second collection finds into its order: a file before the descriptor it writes to.
        call(collect_garbage)
        sys.stdin, sys.stdout, sys.stderr = sys.__stdin__, sys.__stdout__, sys.__stderr__
        sys.excepthook = display
        for name in "last_exc", "last_type", "last_value", "last_traceback":
            vars(sys).pop(name, None)
        for name in modules.keys() - self.loaded:
            call(modules.__delitem__, name)
        call(collect_garbage)
        for stream in filter(None, (sys.stdout, sys.stderr)):
            call(stream.flush)


def forget_shadowed():
    """Unload modules of which the user has a file of his own: where nothing was loaded before, his would be imported."""
    for entry in os.listdir():
        name, extension = os.path.splitext(entry)
        if name in modules and name not in bare and (extension == ".py" or os.path.exists(f"{name}/__init__.py")):
            for module in [module for module in modules if f"{module}.".startswith(f"{name}.")]:
                del modules[module]


def compiled(source):
    """The program's code."""
    try:
        return compile(source, PATH, "exec", dont_inherit=True)
    except SyntaxError as error:
        if not error.lineno or b"\0" in source or not is_utf8(source):
            # The interpreter has other words for a file it cannot decode than for a string. Let it say them.
            os.execv(sys.executable, sys.orig_argv)
        raise


def is_utf8(source):
    try:
        source.decode()
    except UnicodeDecodeError:
        return False
    return True


def call(function, *arguments):
    """Call into the program; returns the exception it ended with, if any.

    A greenlet starts on an empty stack, as an interpreter does: tracebacks, inspect.stack() and the stacklevel of
    warnings find no frames of ours below the program's own.
    """
    raised = None
    try:
        greenlet(function).switch(*arguments)
    except BaseException as error:
        # The first frame is this one.
        raised = BaseException.with_traceback(error, error.__traceback__.tb_next)
    # A tracer that raises is removed by that, hence the second round.
    for set_hook in (set_trace, set_profile) * 2:
        try:
            set_hook(None)
        except BaseException:
            pass
    # Enough for what follows, yet not less than a thread that goes on may have asked for.
    set_recursion_limit(max(get_recursion_limit(), 1000))
    return raised


def uncaught(error):
    """Do what the interpreter does with an exception nobody caught; returns the exit status."""
    if isinstance(error, SystemExit):
        return requested_status(error)
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
    sys.last_exc = error
    try:
        hook = sys.excepthook
    except AttributeError:
        complain("sys.excepthook is missing")
        hook = display
    raised = call(hook, type(error), error, error.__traceback__)
    if isinstance(raised, SystemExit):
        return requested_status(raised)
    if raised is not None:
        complain("Error in sys.excepthook:")
        display(type(raised), raised, raised.__traceback__)
        complain("\nOriginal exception was:")
        display(type(error), error, error.__traceback__)
    return -SIGINT if isinstance(error, KeyboardInterrupt) else 1


def requested_status(error):
    """The exit status a SystemExit asks for."""
    try:
        code = error.code
    except Exception:
        code = error
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF if -(2**63) <= code < 2**63 else 0xFF
    try:
        text = str(code)
    except Exception:
        text = ""
    complain(text)
    return 1


def complain(text):
    """Print to stderr, whatever the program made of it."""
    try:
        stream = sys.stderr
        print(text, file=sys.__stderr__ if stream is None else stream)
    except Exception:
        pass


def flush():
    """Flush the standard streams; returns whether that worked."""
    flushed = True
    for name in "stdout", "stderr":
        stream = getattr(sys, name, None)
        try:
            if stream is not None and not getattr(stream, "closed", False):
                stream.flush()
        except Exception as error:
            flushed = False
            if name == "stdout":
                complain(f"Exception ignored on flushing sys.stdout:\n{type(error).__name__}: {error}")
    return flushed
