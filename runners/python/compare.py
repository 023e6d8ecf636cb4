#!/usr/bin/env python3
"""Compares what a program shows under the runner with what it shows under plain `python3 main.py`.

Each program of programs.py runs three times, each time in a container of its own with the flags of a real run: plain;
"cold", its request waiting when the runner starts; "warm", its request sent once everything is loaded. Equal must be
stdout, stderr, the exit status and the files left in /data. Needs Docker and the image, nothing else:

    ./compare.py [part of a name in the table]
"""

import concurrent.futures
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from subprocess import DEVNULL, PIPE

from programs import PROGRAMS

IMAGE = os.environ.get("RUNNER_IMAGE", "mcp-code-sandbox-python:latest")
FLAGS = (
    "--init --network none --read-only --cap-drop ALL --security-opt no-new-privileges --user 1000:1000 --workdir /data "
    "--tmpfs /tmp:rw,nosuid,nodev,size=64m --memory 256m --memory-swap 256m --cpus 0.5 --pids-limit 128 --ipc private "
    "--log-driver none"
).split()
TOKEN = "0123456789abcdef"
EXIT_LINE = re.compile(rb'\x1e%s \{"exit":(\d+)(,"oom":true)?,"cpuMs":\d+,"peakBytes":\d+\}\n\Z' % TOKEN.encode())
MARK = b"\x1e%s\n" % TOKEN.encode()
# Loaded is who has mapped the last library and sleeps.
UNTIL_LOADED = """
until for process in /proc/[0-9]*; do
    grep -q _backend_agg $process/maps && grep -q '^State:.S' $process/status && break
done 2>/dev/null; do sleep 0.1; done
"""
# A runner costs half a processor while it loads.
PARALLEL = 2 * (os.cpu_count() or 1)


def main():
    part = " ".join(sys.argv[1:])
    selected = [program for program in PROGRAMS if part in program.name]
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(PARALLEL) as pool:
        for program, problems in zip(selected, pool.map(problems_of, selected)):
            failed += bool(problems)
            print(f"{'FAILED' if problems else 'passed'}  {program.name}", end="")
            print(f"  ({program.reason})" if program.reason else "", flush=True)
            for problem in problems:
                print(f"        {problem}")
    print(f"{len(selected) - failed} passed, {failed} failed")
    return 1 if failed else 0


def problems_of(program):
    """Lines saying where the runner differs from plain Python, if it does."""
    plain = run_plain(program)
    problems = []
    results = {"cold": run_runner(program, warm=False), "warm": run_runner(program, warm=True)}
    for mode, result in results.items():
        for aspect, value in result.items():
            expected = program.differs.get(aspect, plain[aspect])
            if program.varies and aspect == "stdout":
                if value in [plain[aspect], *(other[aspect] for name, other in results.items() if name != mode)]:
                    problems.append(f"{mode} {aspect}: {brief(value)} is not unique")
            elif value != expected:
                problems.append(f"{mode} {aspect}: {brief(value)}, plain: {brief(expected)}")
    return problems


def run_plain(program):
    with Workspace(program.files) as workspace:
        (workspace / "main.py").write_bytes(program.source)
        command = docker_run(workspace, "--entrypoint", "python3", environment=program.environment)
        command += ["/data/main.py", *program.arguments]
        done = subprocess.run(command, input=b"", capture_output=True, timeout=120)
        return shown(done.stdout, done.stderr, done.returncode, workspace)


def run_runner(program, warm):
    header = {
        "v": 2,
        "token": TOKEN,
        "bytes": len(program.source),
        "env": program.environment,
        "args": program.arguments,
    }
    request = json.dumps(header).encode() + b"\n" + program.source
    with Workspace(program.files) as workspace:
        command = docker_run(workspace, "--interactive", "--name", workspace.name)
        with subprocess.Popen(command, stdin=PIPE, stdout=PIPE, stderr=PIPE) as process:
            try:
                if warm:
                    wait_until_loaded(workspace.name)
                stdout, stderr = process.communicate(request, timeout=120)
            except BaseException:
                subprocess.run(["docker", "kill", workspace.name])
                raise
        status = process.returncode
        line = EXIT_LINE.search(stderr)
        if line:
            stderr = stderr[: line.start()]
            # What follows the mark is not the program's: a thread of it that outlived it.
            stdout, mark, _ = stdout.rpartition(MARK)
            if not mark or int(line[1]) != status:
                stderr += b"exit line without mark or with another status than the container's"
        ends = "signal" if not line else "oom" if line[2] else "exit"
        if ends != program.ends:
            stderr += f"reported as {ends}, not as {program.ends}".encode()
        return shown(stdout, stderr, status, workspace)


def wait_until_loaded(container):
    for _ in range(100):
        # Fails as long as the container has not started.
        command = ["docker", "exec", container, "sh", "-c", UNTIL_LOADED]
        if subprocess.run(command, stderr=DEVNULL, timeout=60).returncode == 0:
            return
    raise TimeoutError(f"{container} was never loaded")


def docker_run(workspace, *options, environment=None):
    variables = [f"--env={name}={value}" for name, value in (environment or {}).items()]
    return ["docker", "run", "--rm", *FLAGS, *variables, f"--volume={workspace}:/data", *options, IMAGE]


class Workspace:
    """A fresh directory that is /data in one container."""

    def __init__(self, files):
        self.files = files

    def __enter__(self):
        self.path = Path(tempfile.mkdtemp(prefix="compare-"))
        self.path.chmod(0o777)
        for name, text in self.files.items():
            (self.path / name).parent.mkdir(exist_ok=True)
            (self.path / name).write_text(text)
        return self.path

    def __exit__(self, *_):
        shutil.rmtree(self.path, ignore_errors=True)


def shown(stdout, stderr, status, workspace):
    """Everything a run shows, without what differs between any two runs."""
    files = {path.name: path.read_bytes() for path in workspace.glob("*") if path.is_file() and path.name != "main.py"}
    return {"stdout": neutral(stdout), "stderr": neutral(stderr), "status": status, "files": files}


def neutral(text):
    text = re.sub(rb"/(data|tmp)/main\.py", b"main.py", text)
    # Packages are loaded, and the frames below the program, though it cannot see them, count against its recursion limit.
    text = re.sub(rb"\nExtension modules: .*\n|(?<=repeated )99\d(?= more times)", b"", text)
    return re.sub(rb"0x[0-9a-f]{6,}", b"0x...", text)


def brief(value):
    text = repr(value)
    return text if len(text) < 600 else f"{text[:300]} ... {text[-300:]}"


if __name__ == "__main__":
    sys.exit(main())
