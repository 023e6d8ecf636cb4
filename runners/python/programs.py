"""The programs compare.py runs. A `reason` explains each way in which the runner differs from plain Python on purpose."""

import textwrap


class Program:
    def __init__(
        self,
        name,
        source,
        arguments=(),
        environment=None,
        files=None,
        reason=None,
        differs=None,
        varies=False,
        ends="exit",
    ):
        self.name = name
        self.source = source if isinstance(source, bytes) else textwrap.dedent(source).lstrip("\n").encode()
        self.arguments = list(arguments)
        self.environment = environment or {}
        # In /data from earlier runs.
        self.files = files or {}
        self.reason = reason
        # What the runner shows instead, by aspect: stdout, stderr, status, files.
        self.differs = differs or {}
        # Every run must print something else.
        self.varies = varies
        # What an exit line tells: "exit", "oom". There is none where it is "signal".
        self.ends = ends


PROGRAMS = [
    Program("hello", "print('hello')"),
    Program("empty source", ""),
    Program(
        "module namespace",
        "print(globals().keys(), [__name__, __doc__, __package__, __spec__, __cached__, __builtins__, type(__loader__), __file__])",
    ),
    Program("docstring and annotations", '"doc"\nx: int = 1\nprint(__doc__, __annotations__)'),
    Program(
        "__main__ module",
        "import __main__, sys\nx = 1\nprint(__main__.x, sys.modules['__main__'] is __main__, __main__)",
    ),
    Program("arguments", "import sys\nprint(sys.argv, sys.orig_argv)", arguments=["a b", "ü", ""]),
    Program(
        "environment",
        "import os\nprint(os.environ['A'], os.environ['Ü'], os.getenv('HOME'), os.popen('echo $A').read())",
        environment={"A": "1=2\n", "Ü": "ö"},
    ),
    Program(
        "environment that breaks what starts later",
        "import os\nprint(os.environ['LD_PRELOAD'])",
        environment={"LD_PRELOAD": "/nowhere.so", "LD_LIBRARY_PATH": "/data"},
        reason="the interpreter itself has been loaded before",
        differs={"stderr": b""},
    ),
    Program("PYTHONPATH", "import sys\nprint(sys.path)", environment={"PYTHONPATH": "/data/lib:/tmp/lib"}),
    Program(
        "TZ",
        "import time\nprint(time.strftime('%H %Z', time.gmtime(0)), time.localtime(0))",
        environment={"TZ": "Asia/Tokyo"},
    ),
    Program(
        "interpreter state",
        """
        import gc, locale, os, sys, threading
        print(sys.path, sys.flags, sys.getrecursionlimit(), sys.getswitchinterval(), gc.isenabled(), gc.get_threshold())
        print(sys.stdin, sys.stdout, sys.stderr, sys.stdout.errors, sys.stderr.errors, locale.getlocale())
        print(sys.executable, sys.prefix, sys.getfilesystemencoding(), sys.gettrace(), sys.getprofile(), sys.warnoptions)
        print(threading.enumerate()[0].name, len(threading.enumerate()), len(os.listdir("/proc/self/task")), os.getcwd())
        print(sys.excepthook, sys.displayhook, sys.unraisablehook, sys.dont_write_bytecode, oct(os.umask(0)))
    """,
    ),
    Program(
        "signal dispositions",
        "import signal\nprint({s: signal.getsignal(s) for s in signal.valid_signals()}, signal.pthread_sigmask(0, []))",
    ),
    Program(
        "line buffering",
        "import sys\nprint(sys.stdout.line_buffering)",
        reason="lines printed before a kill are kept",
        differs={"stdout": b"True\n"},
    ),
    Program(
        "open descriptors",
        """
        import os
        for fd in os.listdir("/proc/self/fd"):
            # The runner's own are out of the way, matplotlib's fonts are as they are in any program that drew before.
            if int(fd) < 1000 and os.path.exists(path := f"/proc/self/fd/{fd}") and not os.readlink(path).endswith(".ttf"):
                print(fd, os.fstat(int(fd)).st_mode)
    """,
    ),
    Program("descriptors of children", "import os\nprint(os.system('ls /proc/self/fd | grep -c 100'))"),
    Program(
        "randomness",
        "import random, os, numpy\nprint(random.random(), hash('a'), numpy.random.rand(), numpy.random.default_rng().random())",
        varies=True,
    ),
    Program(
        "seeded randomness",
        "import random, numpy\nrandom.seed(1), numpy.random.seed(1)\nprint(random.random(), numpy.random.rand(3))",
    ),
    # Input
    Program("input at end of file", "input('name? ')"),
    Program("stdin", "import sys\nprint(repr(sys.stdin.read()), sys.stdin.isatty(), sys.stdin.fileno())"),
    Program("pdb without input", "x = 1\nbreakpoint()\nprint(x)"),
    # Source text
    Program("CRLF", b"x = '''a\r\nb'''\r\nprint(repr(x))\r\n"),
    Program("byte order mark", b"\xef\xbb\xbfprint('\xc3\xa4')"),
    Program("latin-1 cookie", b"# coding: latin-1\nprint('\xe4')\n1/0 # \xe4"),
    Program("unknown encoding", b"# coding: klingon\nprint(1)"),
    Program("not UTF-8", b"print('\xff')"),
    Program("null byte", b"print(1)\nx = 'a\0b'\n"),
    Program("syntax error", "x = 1\nprint('a'\nfor y in x: pass"),
    Program("indentation error", "if True:\nprint(1)"),
    Program("syntax warning", "print('\\d')\nassert (1, 'x')"),
    Program("future import", "from __future__ import annotations\ndef f(x: Missing): pass\nprint(f.__annotations__)"),
    # Uncaught exceptions
    Program("traceback", "def f(x):\n    return 1 / x\n\ndef g():\n    f(0)\n\ng()"),
    Program(
        "traceback of chained exceptions",
        """
        def f():
            try:
                {}["key"]
            except KeyError as error:
                raise ValueError("bad") from error
        try:
            f()
        except ValueError:
            raise OSError(2, "gone")
    """,
    ),
    Program("exception group", "raise ExceptionGroup('both', [ValueError(1), ExceptionGroup('in', [TypeError(2)])])"),
    Program(
        "exception with notes and a broken str",
        """
        class Odd(Exception):
            def __str__(self): raise RuntimeError("no")
        error = Odd(); error.add_note("note"); raise error
    """,
    ),
    Program("traceback through a package", "import json\njson.loads('{')"),
    Program(
        "traceback through a helper",
        "open('helper.py', 'w').write('def f():\\n    raise ValueError(1)\\n')\nimport helper\nhelper.f()",
    ),
    Program(
        "recursion",
        """
        import sys
        def depth(n):
            try: return depth(n + 1)
            except RecursionError: return n
        print(depth(0) > 990, sys.getrecursionlimit())
        def endless(): endless()
        endless()
    """,
    ),
    Program(
        "recursion with another limit",
        "import sys\nsys.setrecursionlimit(5000)\ndef f(n): return n and f(n - 1)\nprint(f(4900))\nsys.setrecursionlimit(6)",
    ),
    Program(
        "deep recursion in a thread that outlives the program",
        """
        import sys, threading, time
        def deep(n): return time.sleep(0.5) if n == 0 else deep(n - 1)
        sys.setrecursionlimit(100000)
        threading.stack_size(64 << 20)
        threading.Thread(target=lambda: print(deep(20000))).start()
        """,
    ),
    Program(
        "stack",
        """
        import inspect, logging, sys, traceback
        traceback.print_stack()
        print([frame.function for frame in inspect.stack()], sys._getframe().f_back)
        logging.basicConfig()
        logging.error("x", stack_info=True)
        sys._getframe(1)
    """,
    ),
    Program(
        "warnings",
        """
        import warnings
        def old(): warnings.warn("old", DeprecationWarning, stacklevel=2)
        old()
        warnings.warn("from above", UserWarning, stacklevel=2)
        warnings.warn("far above", UserWarning, stacklevel=9)
        warnings.simplefilter("error")
        old()
    """,
    ),
    Program("excepthook", "import sys\nsys.excepthook = lambda *args: print('hook', args[:2])\n1/0"),
    Program(
        "excepthook that fails", "import sys\ndef hook(*args): raise ValueError('hook')\nsys.excepthook = hook\n1/0"
    ),
    Program("excepthook that exits", "import sys\nsys.excepthook = lambda *args: sys.exit(7)\n1/0"),
    Program("excepthook missing", "import sys\ndel sys.excepthook\n1/0"),
    Program(
        "last_exc",
        "import atexit, sys, traceback\natexit.register(lambda: traceback.print_exception(sys.last_exc))\n1/0",
    ),
    Program("KeyboardInterrupt", "import atexit\natexit.register(print, 'bye')\nraise KeyboardInterrupt", ends="signal"),
    Program(
        "KeyboardInterrupt by signal",
        "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nprint('never')",
        ends="signal",
    ),
    Program("KeyboardInterrupt held up", "import signal\nsignal.pthread_sigmask(0, [2])\nraise KeyboardInterrupt"),
    # Exit
    *(
        Program(f"sys.exit({value})", f"import sys\nprint('a')\nsys.exit({value})")
        for value in ("", "0", "3", "137", "256", "-1", "True", "2**70", "3.5", "'text'", "('a', 1)", "b'x'")
    ),
    Program("exit()", "exit(4)"),
    Program("SystemExit of one's own", "class Stop(SystemExit):\n    code = 9\nraise Stop"),
    Program(
        "SystemExit with a broken code",
        "class Stop(SystemExit):\n    @property\n    def code(self): raise ValueError\nraise Stop('x')",
    ),
    Program(
        "SystemExit with a broken str",
        "class Bad:\n    def __str__(self): raise ValueError('no')\nraise SystemExit(Bad())",
    ),
    Program("exit in finally", "import sys\ntry:\n    1/0\nfinally:\n    sys.exit(5)"),
    Program(
        "os._exit",
        "import os\nprint('kept')\nos._exit(7)",
        reason="lines printed before a kill are kept",
        differs={"stdout": b"kept\n"},
    ),
    Program("os._exit like a signal", "import os\nos._exit(137)"),
    *(
        Program(
            f"killed by {name}",
            f"import os, signal\nos.kill(os.getpid(), signal.{name})\nsignal.pause()",
            ends="signal",
        )
        for name in ("SIGKILL", "SIGTERM", "SIGUSR1", "SIGHUP")
    ),
    Program(
        "its process group killed",
        "import os, signal\nsignal.signal(signal.SIGUSR1, lambda *args: print('handled', flush=True))\nos.killpg(0, signal.SIGUSR1)\nos.killpg(0, signal.SIGTERM)",
        ends="signal",
    ),
    Program("out of memory", "b'x' * (1 << 30)", ends="oom"),
    Program(
        "out of memory in a child",
        "import os\nif not os.fork(): b'x' * (1 << 30)\nprint(os.wait()[1])",
    ),
    Program("abort", "import os\nos.abort()", ends="signal"),
    Program("segmentation fault", "import ctypes\nctypes.string_at(0)", ends="signal"),
    Program("faulthandler", "import faulthandler, os\nfaulthandler.enable()\nos.abort()", ends="signal"),
    Program(
        "atexit",
        """
        import atexit, sys
        def fail(): raise ValueError("late")
        atexit.register(print, "first registered")
        atexit.register(fail)
        atexit.register(sys.exit, 3)
        atexit.register(lambda: atexit.register(print, "added"))
        raise SystemExit(2)
    """,
    ),
    Program(
        "objects destroyed at the end",
        """
        class Noisy:
            def __init__(self, name): self.name = name
            def __del__(self): print("del", self.name, Noisy.__name__, last)
        def generate():
            try: yield 1
            finally: print("finally")
        a = Noisy("a"); b = Noisy("b"); b.cycle = b
        items = generate(); next(items)
        last = "defined"
    """,
    ),
    Program(
        "__del__ that fails",
        "class A:\n    def __del__(self): 1/0\na = A()",
        reason="source lines are still to be had",
        differs={
            "stderr": b'Exception ignored in: <function A.__del__ at 0x...>\nTraceback (most recent call last):\n  File "main.py", line 2, in __del__\n    def __del__(self): 1/0\nZeroDivisionError: division by zero\n'
        },
    ),
    Program(
        "files left open",
        """
        import csv, zipfile
        def use(): return file
        file = open("a.txt", "w"); file.write("a" * 10)
        held = [open("b.txt", "w")]; held.append(held); held[0].write("b")
        writer = csv.writer(open("c.csv", "w")); writer.writerow([1, 2])
        archive = zipfile.ZipFile("d.zip", "w"); archive.writestr(zipfile.ZipInfo("x"), "d")
    """,
    ),
    # Streams
    Program("stdout closed", "import sys\nsys.stdout.close()"),
    Program("descriptor 1 closed", "import os\nprint('lost', end='')\nos.close(1)"),
    Program("descriptor 2 closed", "import os\nos.close(2)\n1/0"),
    Program("all descriptors closed", "import os, sys\nos.closerange(0, 4096)\nsys.exit(3)"),
    Program(
        "own file under a reserved descriptor",
        "import os\nos.closerange(3, 4096)\nos.dup2(os.open('f', os.O_RDWR | os.O_CREAT), 1000), os.dup2(1000, 1001)",
    ),
    Program(
        "nonsense for the supervisor",
        """
        import os, signal, subprocess
        try:
            while True: os.write(1000, b"x" * 4096)
        except OSError: pass
        subprocess.Popen(["sh", "-c", f"sleep 1; kill -CONT {os.getpid()}"])
        os.kill(os.getpid(), signal.SIGSTOP)
        os._exit(3)
    """,
    ),
    Program("stdout replaced", "import io, sys\nsys.stdout = io.StringIO()\nprint('lost')\n1/0"),
    Program("stdout replaced by a file", "import sys\nsys.stdout = open('log.txt', 'w')\nprint('kept')"),
    Program("stdout is None", "import sys\nsys.stdout = sys.stderr = None\nprint('lost')\n1/0"),
    Program("stderr is None, exit with text", "import sys\nsys.stderr = None\nsys.exit('text')"),
    Program("stdout is nonsense", "import sys\nsys.stdout = 5\nprint('x')"),
    Program("stdout full", "import os, sys\nos.dup2(os.open('/dev/full', os.O_WRONLY), 1)\nprint('x', end='')"),
    Program("stdout not blocking", "import os, sys\nos.set_blocking(1, False); os.set_blocking(2, False)\nprint('x')"),
    Program(
        "all bytes",
        "import sys\nsys.stdout.buffer.write(bytes(range(256)) * 3); sys.stderr.buffer.write(bytes(range(256)))",
    ),
    Program("not encodable", "print('ok')\nprint('\\udc80')"),
    Program("100 MB", "line = 'x' * 99\nfor _ in range(1000): print('\\n'.join([line] * 1000))"),
    Program("forged exit line", "import sys\nprint('\\x1e0123 {\"exit\":0}', file=sys.stderr)\nsys.exit(3)"),
    # Processes
    Program(
        "fork runs on",
        "import os\nchild = os.fork()\nif child: os.waitpid(child, 0)\nprint('child' if not child else 'parent', flush=True)",
    ),
    Program(
        "fork exits",
        """
        import atexit, os, sys
        atexit.register(lambda: print("exit handler", flush=True))
        child = os.fork()
        if not child: sys.exit(5)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """,
    ),
    Program(
        "fork fails",
        "import os\nchild = os.fork()\nif not child: 1/0\nprint(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))",
    ),
    Program("fork outlives its parent", "import os, time\nif not os.fork():\n    time.sleep(1)\n    open('late', 'w')"),
    Program(
        "fork interrupted",
        "import os\nchild = os.fork()\nif not child: raise KeyboardInterrupt\nprint(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))",
    ),
    Program("exec", "import os\nprint('before', flush=True)\nos.execlp('sh', 'sh', '-c', 'echo after; exit 6')"),
    Program(
        "subprocess",
        "import subprocess, sys\nprint(subprocess.run([sys.executable, '-c', 'print(1); exit(3)'], capture_output=True), flush=True)\nsubprocess.run('echo x; echo y >&2; cat', shell=True)",
    ),
    Program(
        "itself as a subprocess",
        "import subprocess, sys\nif sys.argv[1:]: sys.exit('inner')\nsubprocess.run([sys.executable, __file__, 'x'])",
    ),
    Program(
        "double-forked daemon",
        "import os, time\nif not os.fork():\n    os.setsid()\n    if not os.fork(): time.sleep(100)\n    os._exit(0)\nos.wait()\nprint('done')",
    ),
    *(
        Program(
            f"multiprocessing {method}",
            f"""
        import multiprocessing
        def square(x): return x * x
        def fail(): raise ValueError("in a worker")
        if __name__ == "__main__":
            multiprocessing.set_start_method("{method}")
            with multiprocessing.Pool(2) as pool: print(pool.map(square, range(5)))
            queue = multiprocessing.Queue()
            worker = multiprocessing.Process(target=queue.put, args=(1,)); worker.start(); print(queue.get()); worker.join()
            worker = multiprocessing.Process(target=fail); worker.start(); worker.join(); print(worker.exitcode)
    """,
        )
        for method in ("fork", "spawn", "forkserver")
    ),
    Program(
        "process pool",
        "from concurrent.futures import ProcessPoolExecutor\nwith ProcessPoolExecutor(2) as pool: print(list(pool.map(abs, [-1, 2])))",
    ),
    # Threads and signals
    Program(
        "threads joined at the end",
        "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.3), print('thread'))).start()\nprint('main')",
    ),
    Program(
        "daemon thread",
        "import threading, time\nthreading.Thread(target=lambda: (time.sleep(60), print('thread')), daemon=True).start()\nprint('main')",
    ),
    Program(
        "exception in a thread",
        "import threading\ndef f(): 1/0\nt = threading.Thread(target=f); t.start(); t.join()\nprint('on')",
    ),
    Program(
        "exit in a thread",
        "import sys, threading\nt = threading.Thread(target=lambda: sys.exit(3)); t.start(); t.join()\nprint('on')",
    ),
    Program(
        "thread pool",
        "from concurrent.futures import ThreadPoolExecutor\npool = ThreadPoolExecutor(4)\nprint(sum(pool.map(lambda x: x * 2, range(100))))\npool.submit(print, 'late')",
    ),
    Program(
        "asyncio",
        """
        import asyncio
        async def work(n):
            await asyncio.sleep(0.01 * n)
            return n
        async def main(): print(await asyncio.gather(*map(work, range(3))))
        asyncio.run(main())
        async def fail(): raise ValueError("async")
        asyncio.run(fail())
    """,
    ),
    Program(
        "asyncio left unfinished",
        "import asyncio\nasync def f(): pass\nf()\nloop = asyncio.new_event_loop()\nloop.call_later(1, print)",
    ),
    Program(
        "signal handler",
        "import signal, time\ndef late(*args): raise TimeoutError('late')\nsignal.signal(signal.SIGALRM, late)\nsignal.alarm(1)\ntime.sleep(5)",
    ),
    Program(
        "alarm left armed",
        "import signal\nsignal.signal(signal.SIGALRM, lambda *args: 1/0)\nsignal.setitimer(signal.ITIMER_REAL, 5, 0.0001)",
    ),
    Program("SIGPIPE default", "import signal\nsignal.signal(signal.SIGPIPE, signal.SIG_DFL)\nprint('x')"),
    # Programs that reach into the interpreter
    Program(
        "without __main__",
        "import sys\ndel sys.modules['__main__']\ndef f(): print(sys.argv[1:], __name__)\nf()\nsys.exit(3)",
    ),
    Program("without modules", "import sys\nsys.modules.clear()\nprint('on')"),
    Program(
        "builtins redefined",
        "import builtins, logging\nfor name in 'len', 'print', 'isinstance', 'open', 'getattr', 'vars', 'round', 'sum', 'range', 'type', 'BaseException', 'SystemExit': setattr(builtins, name, None)\nraise ValueError",
    ),
    Program(
        "modules patched",
        """
        import atexit, gc, json, os, signal, sys, time
        def broken(*args, **kwargs): raise RuntimeError("patched")
        os.write = os._exit = os.kill = os.getpid = os.fstat = sys.exit = json.dumps = time.time = signal.signal = broken
        gc.collect = gc.freeze = sys.settrace = sys.setrecursionlimit = broken
        print("end")
    """,
    ),
    Program(
        "tracing left on",
        "import sys\ndef trace(*args): return trace\nsys.settrace(trace); sys.setprofile(trace)\ndef f(): return 1\nf()",
    ),
    Program("tracing that fails", "import sys\ndef trace(*args): raise ValueError\nsys.setprofile(trace)"),
    Program("collector hooks left on", "import gc\ngc.disable()\ngc.callbacks.append(lambda *args: 1/0)\nprint('end')"),
    Program("working directory gone", "import os\nos.mkdir('x'); os.chdir('x'); os.rmdir('../x')\nprint('end')"),
    Program("source file gone", "import os\ndef f():\n    1/0\nos.remove(__file__)\nprint('end')"),
    # Things people do
    Program(
        "getsource",
        "import inspect\ndef f(x):\n    return x # comment\nprint(inspect.getsource(f), inspect.getfile(f), inspect.getmodule(f))",
    ),
    Program("pickle", "import pickle\nclass A: pass\nprint(type(pickle.loads(pickle.dumps(A()))), pickle.dumps(A))"),
    Program(
        "dataclass and type hints",
        "import dataclasses, typing\n@dataclasses.dataclass\nclass A:\n    x: 'B' = None\nclass B: pass\nprint(A(), typing.get_type_hints(A))",
    ),
    Program(
        "unittest",
        "import unittest\nclass T(unittest.TestCase):\n    def test(self): self.assertTrue(1)\n    @unittest.skip('x')\n    def test2(self): pass\nunittest.main(argv=['x', '-v'], exit=True, testRunner=None) if 0 else unittest.main(verbosity=0, testRunner=unittest.TextTestRunner(open('/dev/null', 'w')))",
    ),
    Program(
        "doctest",
        "def f():\n    '''\n    >>> f()\n    2\n    '''\n    return 1\nimport doctest\nprint(doctest.testmod())",
    ),
    Program(
        "argparse",
        "import argparse\np = argparse.ArgumentParser(); p.add_argument('--n', type=int, required=True)\np.parse_args()",
        arguments=["--n", "x"],
    ),
    Program(
        "runpy",
        "import runpy\nopen('other.py', 'w').write('print(__name__, __file__)')\nrunpy.run_path('other.py', run_name='__main__')\nrunpy.run_module('other')",
    ),
    Program(
        "helper import",
        "open('helper.py', 'w').write('x = 41')\nimport helper\nprint(helper.x + 1, helper.__file__)\nimport os; os.remove('helper.py')",
    ),
    Program(
        "helpers named like packages",
        "import calendar, numpy, json, os\nprint(calendar.x, numpy.y, json.loads('1'), os.sep)",
        files={"calendar.py": "x = 1", "numpy/__init__.py": "y = 2", "json/data.json": "{}", "os.py": "z = 3"},
    ),
    Program("exception that is false", "class Empty(Exception, list): pass\nraise Empty"),
    Program(
        "logging",
        "import logging\nlogging.warning('w %s', 1)\ntry: 1/0\nexcept ZeroDivisionError: logging.exception('e')",
    ),
    Program(
        "pandas",
        """
        import pandas as pd
        frame = pd.DataFrame({"a": [1, 2], "b": ["x", None]})
        print(frame, frame.describe(), frame.dtypes, pd.get_option("display.width"))
        frame.to_excel("a.xlsx", index=False); print(pd.read_excel("a.xlsx"))
        import os; os.remove("a.xlsx")
        frame["missing"]
    """,
    ),
    Program(
        "chart",
        """
        import matplotlib, matplotlib.pyplot as plt, os
        figure = plt.figure(); print(figure.number, matplotlib.get_backend(), plt.rcParams["figure.figsize"])
        plt.plot([1, 2, 3]); plt.savefig("chart.png", metadata={"Software": None})
        plt.show()
    """,
    ),
    Program("numpy warnings", "import numpy\nprint(numpy.array([1.0]) / 0, numpy.geterr())"),
]
