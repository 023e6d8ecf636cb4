"""Measures mcp-code-sandbox against a bare interpreter and `docker run`, interleaved on one machine.

Python's standard library only. See README.md for what is measured and how to read it.
"""

import argparse
import concurrent.futures
import http.client
import json
import os
import pathlib
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import uuid

TOKEN = "bench"
PORT_WAIT_S = 20
# Long enough for the next container to be prepared and loaded: what is measured is a call, not a queue.
PAUSE_S = 2.5

HELLO = "print('hello')"
CHART = """
import pandas as pd
import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt
frame = pd.DataFrame({"name": list("abcdef"), "value": [3, 1, 4, 1, 5, 9]})
frame.describe()
frame.plot(x="name", y="value", kind="bar")
plt.savefig("chart.png")
print("done")
"""
TS_HELLO = "const word: string = 'hello'; console.log(word)"

WORKS = {
    "hello": ("python", HELLO),
    "chart": ("python", CHART),
    "ts_hello": ("typescript", TS_HELLO),
}

HARDENED = (
    "--network none --read-only --cap-drop ALL --security-opt no-new-privileges --init --user 1000:1000 "
    "--tmpfs /tmp:rw,exec,nosuid,nodev,size=64m --memory 256m --memory-swap 256m --cpus 0.5 --pids-limit 128 "
    "--ipc private --log-driver none --ulimit core=0 -w /data"
).split()


class Server:
    """The release build with settings of its own, as a child process."""

    def __init__(self, binary, settings=()):
        self.root = tempfile.TemporaryDirectory(prefix="bench-")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        environment = {
            "PATH": os.environ["PATH"],
            "MCP_API_TOKEN": TOKEN,
            "FILE_SECRET": "0123456789abcdef" * 2,
            "MCP_HTTP_ADDR": f"127.0.0.1:{self.port}",
            "PUBLIC_BASE_URL": self.url,
            "SANDBOX_ROOT": self.root.name,
            "RUST_LOG": "warn",
            **dict(settings),
        }
        self.process = subprocess.Popen([os.path.abspath(binary)], env=environment, cwd=self.root.name)
        deadline = time.monotonic() + PORT_WAIT_S
        while True:
            try:
                connection = self.connect()
                connection.request("GET", "/readyz")
                if connection.getresponse().status == 200:
                    break
            except OSError:
                pass
            if time.monotonic() > deadline:
                raise SystemExit("the server does not start")
            time.sleep(0.05)

    def connect(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        connection.connect()
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def rss_mb(self):
        for line in pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1]) / 1024
        raise SystemExit("the server is gone")

    def close(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(20)
        self.root.cleanup()


def call(connection, tool, arguments):
    """Calls a tool on a kept-alive connection; returns its result and the time it took in milliseconds."""
    body = json.dumps(
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
    )
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    started = time.perf_counter()
    connection.request("POST", "/mcp", body, headers)
    answer = connection.getresponse().read()
    took = (time.perf_counter() - started) * 1e3
    return json.loads(answer)["result"], took


def run(connection, language, code, conversation=None, **more):
    arguments = {"language": language, "code": code, **more}
    if conversation:
        arguments["conversationId"] = conversation
    result, took = call(connection, "run_code", arguments)
    structured = result.get("structuredContent")
    if not structured or structured["status"] != "ok":
        raise SystemExit(f"a run failed: {json.dumps(result)[:500]}")
    return took


def bare(python, code):
    with tempfile.TemporaryDirectory() as directory:
        started = time.perf_counter()
        subprocess.run([python, "-c", code], cwd=directory, check=True, stdout=subprocess.DEVNULL)
        return (time.perf_counter() - started) * 1e3


def docker_run(language, code, data):
    """The image and flags of a run, started by the command line."""
    header = {"v": 2, "token": "ab" * 16, "bytes": len(code), "env": {}, "args": []}
    request = json.dumps(header) + "\n" + code
    command = ["docker", "run", "--rm", "-i", *HARDENED, "-v", f"{data}:/data", f"mcp-code-sandbox-{language}"]
    started = time.perf_counter()
    subprocess.run(command, input=request.encode(), check=True, capture_output=True)
    return (time.perf_counter() - started) * 1e3


def percentiles(times):
    ordered = sorted(times)
    return {
        "p50": round(statistics.median(ordered), 2),
        "p90": round(ordered[min(len(ordered) - 1, int(len(ordered) * 0.9))], 2),
        "n": len(ordered),
    }


def latencies(server, cold_server, python, data, rounds):
    """One round measures everything once, so that the machine's moods meet all alike."""
    connection, cold = server.connect(), cold_server.connect()
    times = {}

    def note(name, took):
        times.setdefault(name, []).append(took)

    for work, (language, code) in WORKS.items():
        run(connection, language, code, conversation=f"later-{work}")
    time.sleep(PAUSE_S * 2)
    for _ in range(rounds):
        for work, (language, code) in WORKS.items():
            note(f"{work} later", run(connection, language, code, conversation=f"later-{work}"))
            time.sleep(PAUSE_S)
            note(f"{work} first", run(connection, language, code, conversation=str(uuid.uuid4())))
            time.sleep(PAUSE_S)
            if language == "python":
                note(f"{work} bare", bare(python, code))
            if work != "chart":
                note(f"{work} docker", docker_run(language, code, data))
                time.sleep(0.3)
                note(f"{work} cold", run(cold, language, code))
                time.sleep(0.3)
    return {name: percentiles(values) for name, values in times.items()}


def throughput(server, data, callers, seconds):
    """Calls a second of `callers` that each call again as soon as they are answered."""

    def ours(number):
        connection, done, end = server.connect(), 0, time.monotonic() + seconds
        while time.monotonic() < end:
            run(connection, "python", HELLO, conversation=f"caller-{number}")
            done += 1
        return done

    def docker(_):
        done, end = 0, time.monotonic() + seconds
        while time.monotonic() < end:
            docker_run("python", HELLO, data)
            done += 1
        return done

    rates = {}
    for name, work in (("ours", ours), ("docker run", docker)):
        started = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(callers) as pool:
            done = sum(pool.map(work, range(callers)))
        rates[name] = round(done / (time.monotonic() - started), 2)
        time.sleep(PAUSE_S)
    rates["ratio"] = round(rates["ours"] / rates["docker run"], 2)
    return rates


def warm_memory_mb():
    """Memory of one loaded Python container, as its cgroup counts it."""
    names = subprocess.run(
        ["docker", "ps", "--filter", "label=sandbox.language=python", "--format", "{{.Names}}"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    if not names:
        return None
    line = subprocess.run(
        ["docker", "stats", "--no-stream", "--format", "{{.MemUsage}}", names[0]],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return line.split("/")[0].strip()


def small_things(server):
    connection = server.connect()
    listing = [call(connection, "list_runners", {})[1] for _ in range(200)]
    code = "open('small', 'wb').write(b'x' * 1024); open('large', 'wb').write(b'x' * 100 * 2**20)"
    result, _ = call(connection, "run_code", {"language": "python", "code": code, "conversationId": "downloads"})
    urls = {file["name"]: file["url"] for file in result["structuredContent"]["files"]}

    def download(name):
        started = time.perf_counter()
        connection.request("GET", urls[name].removeprefix(server.url))
        response, size = connection.getresponse(), 0
        while chunk := response.read(1 << 20):
            size += len(chunk)
        return (time.perf_counter() - started) * 1e3, size

    small = [download("small")[0] for _ in range(200)]
    large = [download("large")[0] for _ in range(5)]
    return {
        "list_runners": percentiles(listing),
        "download 1 KB": percentiles(small),
        "download 100 MB": percentiles(large),
    }


def memory(server, calls):
    """Resident memory of the server before and after many calls."""
    before = server.rss_mb()
    connection = server.connect()
    for number in range(calls):
        run(connection, "bash", "echo hello", conversation=f"memory-{number % 8}")
    return {"idle MB": round(before, 1), f"after {calls} calls MB": round(server.rss_mb(), 1), "calls": calls}


def ratio(times, a, b):
    return round(times[a]["p50"] / times[b]["p50"], 3)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", required=True, help="the release binary")
    parser.add_argument("--python", default="python3", help="a bare interpreter with pandas and matplotlib")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=15, help="length of each throughput measurement")
    parser.add_argument("--calls", type=int, default=1000, help="calls of the memory measurement")
    parser.add_argument("--json", default=".build/bench.json", help="where the numbers go")
    options = parser.parse_args()

    data = tempfile.mkdtemp(prefix="bench-data-")
    os.chown(data, 1000, 1000)
    server = Server(options.server)
    cold_server = Server(options.server, [("WARM_POOL_SIZE", "0"), ("WARM_CONVERSATIONS", "0")])
    try:
        time.sleep(PAUSE_S * 2)
        resident = memory(cold_server, options.calls) if options.calls else None
        times = latencies(server, cold_server, options.python, data, options.rounds)
        warm = warm_memory_mb()
        small = small_things(server)
        rates = {str(n): throughput(server, data, n, options.seconds) for n in (1, 4, 8)} if options.seconds else {}
    finally:
        server.close()
        cold_server.close()
    ratios = {
        "hello later / bare": ratio(times, "hello later", "hello bare"),
        "hello first / later": ratio(times, "hello first", "hello later"),
        "chart later / bare": ratio(times, "chart later", "chart bare"),
        "ts hello later / docker run": ratio(times, "ts_hello later", "ts_hello docker"),
        "cold / docker run": ratio(times, "hello cold", "hello docker"),
    }
    report = {
        "latency_ms": times,
        "ratios": ratios,
        "throughput_per_s": rates,
        "small_ms": small,
        "server_memory": resident,
        "warm_python_container_memory": warm,
    }
    path = pathlib.Path(options.json)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=1))
    show(report)


def show(report):
    print(f"{'ms':<20} {'p50':>9} {'p90':>9} {'n':>5}")
    for group in ("latency_ms", "small_ms"):
        for name, row in report[group].items():
            print(f"{name:<20} {row['p50']:>9.2f} {row['p90']:>9.2f} {row['n']:>5}")
    print()
    for name, value in report["ratios"].items():
        print(f"{name:<30} {value}")
    for callers, rates in report["throughput_per_s"].items():
        print(f"calls/s, {callers} callers: {rates}")
    print(f"server memory: {report['server_memory']}")
    print(f"a loaded Python container: {report['warm_python_container_memory']}")


if __name__ == "__main__":
    sys.exit(main())
