#!/usr/bin/env python3
"""Compares what a program shows under the runner with what it shows under plain `bun run`.

Each program of programs.py runs three times, each time in a container of its own with the flags of a real run: plain;
"cold", its request waiting when the runner starts; "warm", its request sent once everything is loaded. Equal must be
stdout, stderr, the exit status and the files left in /data. Needs Docker and the image, nothing else:

    ./compare.py [part of a program's name]
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

from programs import PROGRAMS

IMAGE = os.environ.get("RUNNER_IMAGE", "mcp-code-sandbox-typescript:latest")
FLAGS = (
    "--init --network none --read-only --cap-drop ALL --security-opt no-new-privileges --user 1000:1000 --workdir /data "
    "--tmpfs /tmp:rw,nosuid,nodev,size=64m --memory 256m --memory-swap 256m --cpus 0.5 --pids-limit 128 --ipc private "
    "--log-driver none"
).split()
TOKEN = "0123456789abcdef"
EXIT_LINE = re.compile(rb'\x1e%s \{"exit":(\d+),"cpuMs":\d+,"peakBytes":\d+\}\n\Z' % TOKEN.encode())
MARK = b"\x1e%s\n" % TOKEN.encode()
# The runner is loaded when it waits for its stdin.
UNTIL_LOADED = """
until for process in /proc/[0-9]*; do
    grep -q '^bun' $process/cmdline && grep -q pipe_read $process/wchan && break
done 2>/dev/null; do sleep 0.1; done
"""
# As bun names its program and the runner names it; brackets, for it must not meet a file of the user's.
PLAIN_NAME = "script.ts"
RUNNER_NAME = rb"(\[|%5B)code(\]|%5D)\.ts"
PARALLEL = 2 * (os.cpu_count() or 1)


def main():
    selected = [program for program in PROGRAMS if sys.argv[1:] in ([], [program.name]) or sys.argv[1] in program.name]
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
    """Lines saying where the runner differs from plain Bun, if it does."""
    plain = run_plain(program)
    problems = []
    for mode in ("cold", "warm"):
        for aspect, value in run_runner(program, warm=mode == "warm").items():
            expected = program.differs.get(aspect, plain[aspect])
            if value != expected:
                problems.append(f"{mode} {aspect}: {brief(value)}, plain: {brief(expected)}")
    return problems


def run_plain(program):
    with Workspace(program) as workspace:
        (workspace / PLAIN_NAME).write_bytes(program.source)
        command = docker_run(workspace, "--entrypoint", "bun", environment=program.environment)
        command += ["run", "--no-install", PLAIN_NAME, *program.arguments]
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
    with Workspace(program) as workspace:
        command = docker_run(workspace, "--interactive", "--name", workspace.name)
        with subprocess.Popen(command, stdin=-1, stdout=-1, stderr=-1) as process:
            if warm:
                wait_until_loaded(workspace.name)
            stdout, stderr = process.communicate(request, timeout=120)
        status = process.returncode
        line = EXIT_LINE.search(stderr)
        if line:
            stderr = stderr[: line.start()]
            if not stdout.endswith(MARK) or int(line[1]) != status:
                stderr += b"exit line without mark or with another status than the container's"
            stdout = stdout.removesuffix(MARK)
        return shown(stdout, stderr, status, workspace)


def wait_until_loaded(container):
    for _ in range(100):
        # Fails as long as the container has not started.
        if subprocess.run(["docker", "exec", container, "sh", "-c", UNTIL_LOADED], stderr=-3, timeout=60).returncode == 0:
            return
    raise TimeoutError(f"{container} was never loaded")


def docker_run(workspace, *options, environment=None):
    variables = [f"--env={name}={value}" for name, value in (environment or {}).items()]
    return ["docker", "run", "--rm", *FLAGS, *variables, f"--volume={workspace}:/data", *options, IMAGE]


class Workspace:
    """A fresh directory that is /data in one container."""

    def __init__(self, program):
        self.path = Path(tempfile.mkdtemp(prefix="compare-"))
        self.path.chmod(0o777)
        for name, text in program.files.items():
            path = self.path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def __enter__(self):
        return self.path

    def __exit__(self, *_):
        shutil.rmtree(self.path, ignore_errors=True)


def shown(stdout, stderr, status, workspace):
    """Everything a run shows, without what differs between any two runs."""
    files = {path.name: path.read_bytes() for path in workspace.glob("*") if path.is_file() and path.name != PLAIN_NAME}
    return {"stdout": neutral(stdout), "stderr": neutral(stderr), "status": status, "files": files}


def neutral(text):
    return re.sub(RUNNER_NAME, PLAIN_NAME.encode(), text)


def brief(value):
    text = repr(value)
    return text if len(text) < 600 else f"{text[:300]} ... {text[-300:]}"


if __name__ == "__main__":
    sys.exit(main())
