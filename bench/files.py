"""Measures uploads and downloads of a large file: memory of the server, and speed beside nginx.

Python's standard library only. See README.md for what is measured and how to read it.
"""

import argparse
import concurrent.futures
import hashlib
import json
import pathlib
import shutil
import socket
import statistics
import subprocess
import tempfile
import time
from urllib.parse import urlsplit

from bench import Server, call

MIB = 1 << 20

NGINX = """
daemon off; master_process off; user root; worker_processes 1; pid {root}/nginx.pid; error_log {root}/error.log;
events {{ worker_connections 64; }}
http {{
    access_log off; sendfile on; tcp_nodelay on;
    client_body_temp_path {root}/a; proxy_temp_path {root}/b; fastcgi_temp_path {root}/c;
    uwsgi_temp_path {root}/d; scgi_temp_path {root}/e;
    server {{ listen 127.0.0.1:{port}; root {files}; }}
}}
"""


class Nginx:
    """The yardstick: a process of its own on the same file."""

    def __init__(self, files):
        self.root = tempfile.TemporaryDirectory(prefix="bench-nginx-")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        settings = pathlib.Path(self.root.name, "nginx.conf")
        settings.write_text(NGINX.format(root=self.root.name, port=self.port, files=files))
        self.process = subprocess.Popen(["nginx", "-p", self.root.name, "-c", str(settings)])
        time.sleep(0.5)

    def close(self):
        self.process.terminate()
        self.process.wait(10)
        self.root.cleanup()


def request(port, head, timeout=120):
    connection = socket.create_connection(("127.0.0.1", port), timeout)
    connection.sendall(f"{head}\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n".encode())
    return connection


def answer(connection):
    """Status, head and the first bytes of the body."""
    received = b""
    while b"\r\n\r\n" not in received:
        piece = connection.recv(64 << 10)
        if not piece:
            raise SystemExit(f"no answer: {received!r}")
        received += piece
    head, body = received.split(b"\r\n\r\n", 1)
    return int(head.split()[1]), head.decode(), body


def upload(url, path):
    """Seconds that a PUT of the file takes."""
    place, size = urlsplit(url), path.stat().st_size
    started = time.perf_counter()
    with request(place.port, f"PUT {place.path} HTTP/1.1") as connection, path.open("rb") as file:
        connection.sendall(f"Content-Length: {size}\r\n\r\n".encode())
        connection.sendfile(file)
        status, _, body = answer(connection)
        while piece := connection.recv(64 << 10):
            body += piece
    took = time.perf_counter() - started
    if status != 201:
        raise SystemExit(f"the upload was refused: {status} {body!r}")
    return took, json.loads(body)


def download(port, path, size):
    """Seconds that a GET takes whose bytes are looked at by nobody."""
    started = time.perf_counter()
    with request(port, f"GET {path} HTTP/1.1") as connection:
        connection.sendall(b"\r\n")
        status, head, body = answer(connection)
        received, buffer = len(body), bytearray(MIB)
        while count := connection.recv_into(buffer):
            received += count
    took = time.perf_counter() - started
    if status != 200 or received != size:
        raise SystemExit(f"{received} of {size} bytes: {head}")
    return took


def status_mb(server, name):
    for line in pathlib.Path(f"/proc/{server.process.pid}/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) / 1024
    raise SystemExit("the server is gone")


def peak_mb(server, work):
    """What the server's memory rose by at the most while `work` was done, and what that gave."""
    pathlib.Path(f"/proc/{server.process.pid}/clear_refs").write_text("5")
    before = status_mb(server, "VmRSS")
    done = work()
    return round(status_mb(server, "VmHWM") - before, 1), done


def make_file(path, size):
    # Nothing that a file system could leave out.
    digest, block = hashlib.sha256(), hashlib.shake_128(b"bench").digest(MIB)
    with path.open("wb") as file:
        for number in range(size // MIB):
            piece = number.to_bytes(8, "big") + block[8:]
            digest.update(piece)
            file.write(piece)
    return digest.hexdigest()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", required=True, help="the release binary")
    parser.add_argument("--mib", type=int, default=1024, help="size of the file")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--parallel", type=int, default=20)
    parser.add_argument("--json", default=".build/bench-files.json", help="where the numbers go")
    options = parser.parse_args()

    size = options.mib * MIB
    scratch = pathlib.Path(tempfile.mkdtemp(prefix="bench-files-"))
    settings = {"MAX_UPLOAD_BYTES": "2g", "WORKSPACE_QUOTA_BYTES": "4g", "WARM_POOL_SIZE": "0", "WARM_CONVERSATIONS": "0"}
    server = Server(options.server, settings.items())
    nginx = None
    try:
        source = scratch / "large.bin"
        digest = make_file(source, size)
        idle = status_mb(server, "VmRSS")
        arguments = {"conversationId": "bench", "filename": "large.bin"}
        result, _ = call(server.connect(), "create_upload_url", arguments)
        uploading, (took, uploaded) = peak_mb(server, lambda: upload(result["structuredContent"]["url"], source))
        if uploaded["sha256"] != digest:
            raise SystemExit("the upload changed the file")
        place = urlsplit(uploaded["url"])

        def ours():
            return download(server.port, place.path, size)

        downloading, _ = peak_mb(server, ours)
        nginx = Nginx(pathlib.Path(server.root.name, place.path.split("/")[2]))

        def theirs():
            return download(nginx.port, "/large.bin", size)

        theirs()
        times = {"ours": [], "nginx": []}
        for _ in range(options.rounds):
            times["ours"].append(ours())
            times["nginx"].append(theirs())

        def at_once():
            started = time.perf_counter()
            with concurrent.futures.ThreadPoolExecutor(options.parallel) as pool:
                list(pool.map(lambda _: ours(), range(options.parallel)))
            return time.perf_counter() - started

        many, all_took = peak_mb(server, at_once)
    finally:
        server.close()
        if nginx:
            nginx.close()
        shutil.rmtree(scratch)

    speed = {name: round(size / MIB / statistics.median(all_times)) for name, all_times in times.items()}
    report = {
        "server idle MB": round(idle, 1),
        f"upload of {options.mib} MiB": {"MiB/s": round(size / MIB / took), "memory MB more": uploading},
        f"download of {options.mib} MiB": {"memory MB more": downloading},
        "download MiB/s, medians": speed,
        "download, ours to nginx": round(speed["ours"] / speed["nginx"], 2),
        f"{options.parallel} downloads at once": {
            "MiB/s": round(options.parallel * size / MIB / all_took),
            "memory MB more": many,
        },
    }
    path = pathlib.Path(options.json)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**report, "seconds": times}, indent=1))
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
