#!/usr/bin/env python3
"""Tries the configurations of nginx and Caddy: each, with only names, ports and certificate changed, in front of a
server of its own on this machine's loopback. It takes two minutes, most of them spent in a run that is silent for
longer than proxies like to wait.

    ./build.sh runners server && python3 deploy/try-proxies.py [nginx|caddy]...

Needs the programs nginx and caddy (Debian's packages do), openssl and a Docker engine.
"""

import base64
import contextlib
import hashlib
import http.client
import json
import os
import pathlib
import re
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

HERE = pathlib.Path(__file__).resolve().parent
SERVER = HERE.parent / "target/release/mcp-code-sandbox"
TOKEN = "token-of-a-trial"
NAME = "sandbox.example.com"

# The most that upload_file takes, and more than proxies like to pass on.
CALL_BYTES = 50 << 20
LINK_BYTES = 100 << 20

# Longer than nginx waits unless told otherwise (60 s), and than streams are kept alive at (15 s).
SILENT_SECONDS = 65


def main():
    chosen = sys.argv[1:] or ["nginx", "caddy"]
    with contextlib.ExitStack() as stack:
        directory = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="try-proxies-")))
        # nginx's workers are nobody.
        directory.chmod(0o711)
        make_certificate(directory)
        ports = {name: free_port() for name in ["server", *chosen]}
        stack.enter_context(running("server", server_command(), server_settings(directory, ports["server"])))
        wait_for_port(ports["server"])
        proxies = {}
        for name in chosen:
            command = COMMANDS[name](directory, ports["server"], ports[name])
            stack.enter_context(running(name, command, os.environ | homes(directory)))
            wait_for_port(ports[name])
            proxies[name] = Proxy(name, ports[name], directory / "certificate.pem")
        trials = [threading.Thread(target=try_all, args=[proxy]) for proxy in proxies.values()]
        for trial in trials:
            trial.start()
        for trial in trials:
            trial.join()
    if FAILED:
        sys.exit(f"failed: {', '.join(FAILED)}")


FAILED = []


def try_all(proxy):
    for trial in [gate, upload_by_call, upload_by_link, silent_run, events, client_goes_away]:
        began = time.monotonic()
        try:
            found = trial(proxy)
        except Exception as error:  # noqa: BLE001: the next trial may tell why
            FAILED.append(f"{proxy.name} {trial.__name__}")
            found = f"FAILED: {error!r}"
        print(f"{proxy.name:6} {trial.__name__:20} {time.monotonic() - began:6.1f} s  {found}", flush=True)


# ---- what is tried


def gate(proxy):
    """Host is passed on, so the server still tells its own name from others; the token is still asked for."""
    ready = proxy.request("GET", "/readyz")[0]
    tokenless = proxy.request("POST", "/mcp", b"{}", token=None)[0]
    assert (ready, tokenless) == (200, 401), (ready, tokenless)
    # For a name that is not its own, nginx asks the server all the same, and Caddy has an empty page.
    status, body = proxy.request("POST", "/mcp", message("tools/list", {}), {"Host": "elsewhere.example.com"})
    assert status == 403 or not body, (status, body[:500])
    return f"ready {ready}, no token {tokenless}, another host {status}"


def upload_by_call(proxy):
    content = os.urandom(CALL_BYTES)
    arguments = {"conversationId": proxy.name, "filename": "large.bin", "content": base64.b64encode(content).decode()}
    began = time.monotonic()
    uploaded = proxy.call("upload_file", arguments)
    sent = time.monotonic() - began
    return f"{len(content) >> 20} MB up in {sent:.1f} s, {download(proxy, uploaded['file']['url'], content)}"


def upload_by_link(proxy):
    """As curl does it: the file as it is, sent to a link that works once."""
    content = os.urandom(LINK_BYTES)
    ticket = proxy.call("create_upload_url", {"conversationId": f"{proxy.name}-link", "filename": "large.bin"})
    path = urllib.parse.urlsplit(ticket["url"]).path
    began = time.monotonic()
    status, body = proxy.request("PUT", path, content, token=None)
    sent = time.monotonic() - began
    assert status in (200, 201), (status, body)
    return f"{len(content) >> 20} MB up in {sent:.1f} s, {download(proxy, json.loads(body)['url'], content)}"


def download(proxy, url, content):
    path = urllib.parse.urlsplit(url).path
    began = time.monotonic()
    status, body = proxy.request("GET", path, token=None)
    took = time.monotonic() - began
    assert status == 200 and hashlib.sha256(body).digest() == hashlib.sha256(content).digest()
    status, part = proxy.request("GET", path, token=None, headers={"Range": "bytes=1000-1999"})
    assert (status, part) == (206, content[1000:2000]), status
    return f"down in {took:.1f} s, and a part of it"


def silent_run(proxy):
    arguments = {"language": "bash", "code": f"sleep {SILENT_SECONDS}; echo awake", "timeoutSeconds": 120}
    run = proxy.call("run_code", arguments)
    assert run["output"] == "awake\n", run
    return f"{run['durationMs'] / 1000:.1f} s of silence"


def events(proxy):
    """A client with a session gets a stream: what the server sends in the middle of a run arrives then."""
    accept = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-06-18"}
    opening = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "trial", "version": "0"},
    }
    answer = proxy.open("POST", "/mcp", message("initialize", opening), accept)
    accept["Mcp-Session-Id"] = answer.getheader("Mcp-Session-Id")
    answer.read()
    initialized = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    proxy.open("POST", "/mcp", json.dumps(initialized).encode(), accept).read()

    # What goes wrong in the beginning of a stream does so now and then.
    for _ in range(20):
        stream(proxy, accept, "echo streamed")
    arrived = stream(proxy, accept, "sleep 20; echo streamed")
    before = [when for when in arrived if when < arrived[-1] - 2]
    assert before[-1] > 10, arrived
    return f"20 streams; of a run of {arrived[-1]:.1f} s something arrived after {before[-1]:.1f} s"


def stream(proxy, headers, code):
    """When its lines arrived, the last of them with the result."""
    parameters = {"name": "run_code", "arguments": {"language": "bash", "code": code}}
    began = time.monotonic()
    answer = proxy.open("POST", "/mcp", message("tools/call", parameters), headers)
    assert answer.getheader("Content-Type") == "text/event-stream", answer.getheaders()
    arrived = []
    for line in answer:
        if line.strip():
            arrived.append(time.monotonic() - began)
        if b"streamed" in line:
            return arrived
    raise AssertionError(f"the stream ended without the result after {len(arrived)} lines")


def client_goes_away(proxy):
    """Its run must end with it, which only happens where the proxy passes that on."""
    mark = f"away-{proxy.name}-{os.getpid()}"
    code = {"language": "bash", "code": "sleep 100", "timeoutSeconds": 100, "environment": {"MARK": mark}}
    connection = proxy.connect()
    body = message("tools/call", {"name": "run_code", "arguments": code})
    connection.request("POST", "/mcp", body, proxy.headers(TOKEN))
    until(lambda: marked(mark), 10, "the run does not start")
    connection.sock.close()
    gone = time.monotonic()
    until(lambda: not marked(mark), 10, "the run goes on without its client")
    return f"its container was gone after {time.monotonic() - gone:.1f} s"


def marked(mark):
    """Whether a container has that in its environment: runs of protocol 1 do."""
    listed = subprocess.run(["docker", "ps", "--quiet", "--filter", "label=sandbox.runner=true"], check=True, capture_output=True)
    ids = listed.stdout.split()
    if not ids:
        return False
    # Some may be gone by then.
    return mark.encode() in subprocess.run(["docker", "inspect", *ids], check=False, capture_output=True).stdout


def until(holds, seconds, otherwise):
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.1)


# ---- a client


class Proxy:
    def __init__(self, name, port, certificate):
        self.name = name
        self.port = port
        self.tls = ssl.create_default_context(cafile=certificate)

    def connect(self):
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=150, context=self.tls)
        plain = socket.create_connection(("127.0.0.1", self.port), timeout=150)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sock = self.tls.wrap_socket(plain, server_hostname=NAME)
        return connection

    def headers(self, token, others=None):
        headers = {"Host": NAME, "Content-Type": "application/json"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        return headers | (others or {})

    def open(self, method, path, body=None, headers=None, token=TOKEN):
        connection = self.connect()
        connection.request(method, path, body, self.headers(token, headers))
        return connection.getresponse()

    def request(self, method, path, body=None, headers=None, token=TOKEN):
        answer = self.open(method, path, body, headers, token)
        return answer.status, answer.read()

    def call(self, tool, arguments):
        status, body = self.request("POST", "/mcp", message("tools/call", {"name": tool, "arguments": arguments}))
        assert status == 200, (status, body[:500])
        return json.loads(body)["result"]["structuredContent"]


def message(method, parameters):
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": parameters}).encode()


# ---- the server and the proxies


def server_command():
    return [str(SERVER), "serve"]


def server_settings(directory, port):
    return {
        "PATH": os.environ["PATH"],
        "MCP_HTTP_ADDR": f"127.0.0.1:{port}",
        "PUBLIC_BASE_URL": f"https://{NAME}",
        "MCP_API_TOKEN": TOKEN,
        "FILE_SECRET": "0123456789abcdef" * 2,
        "SANDBOX_ROOT": str(directory / "data"),
        "MAX_UPLOAD_BYTES": str(LINK_BYTES),
        "WARM_POOL_SIZE": "0",
        "RUST_LOG": "warn",
    } | {name: os.environ[name] for name in ["DOCKER_HOST"] if name in os.environ}


def homes(directory):
    """Where Caddy keeps certificates, and the configuration it ran last."""
    return {"XDG_DATA_HOME": str(directory), "XDG_CONFIG_HOME": str(directory)}


def nginx(directory, server, port):
    """Its configuration lives in the http block of Debian's nginx.conf."""
    text = (HERE / "nginx.conf").read_text()
    text = replaced(text, r"listen 443 ssl;", f"listen 127.0.0.1:{port} ssl;")
    text = replaced(text, r"listen 80;", f"listen 127.0.0.1:{free_port()};")
    text = replaced(text, r" *listen \[::\]:\d+.*;\n", "")
    text = replaced(text, r"127\.0\.0\.1:8080", f"127.0.0.1:{server}")
    text = replaced(text, r"/etc/letsencrypt/live/\S+/fullchain.pem", str(directory / "certificate.pem"))
    text = replaced(text, r"/etc/letsencrypt/live/\S+/privkey.pem", str(directory / "key.pem"))
    text = replaced(text, r"/var/log/nginx", str(directory))
    whole = directory / "nginx.conf"
    whole.write_text(f"pid {directory}/nginx.pid;\nerror_log stderr;\nevents {{}}\nhttp {{\n{text}\n}}\n")
    # The default prefix has its temporary files where only root may write.
    command = ["nginx", "-e", "stderr", "-p", str(directory), "-c", str(whole)]
    checked([*command, "-t"])
    return [*command, "-g", "daemon off;"]


def caddy(directory, server, port):
    text = (HERE / "Caddyfile").read_text()
    whole = directory / "Caddyfile"
    pki = f"tls {directory}/certificate.pem {directory}/key.pem"
    text = replaced(text, r"(?m)^sandbox\.example\.com \{", f"https://{NAME}:{port} {{\n\tbind 127.0.0.1\n\t{pki}")
    text = replaced(text, r"127\.0\.0\.1:8080", f"127.0.0.1:{server}")
    if checked(["caddy", "version"]).lstrip("v").startswith("2.6."):
        text = replaced(text, "# buffer_requests", "buffer_requests")
    whole.write_text("{\n\tadmin off\n\tauto_https off\n}\n" + text)
    options = ["--config", str(whole), "--adapter", "caddyfile"]
    checked(["caddy", "validate", *options])
    return ["caddy", "run", *options]


COMMANDS = {"nginx": nginx, "caddy": caddy}


def replaced(text, pattern, value):
    text, count = re.subn(pattern, lambda _: value, text)
    assert count, f"{pattern} is not in the configuration any more"
    return text


def make_certificate(directory):
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={NAME}"]
    command += ["-addext", f"subjectAltName=DNS:{NAME}", "-keyout", "key.pem", "-out", "certificate.pem"]
    checked(command, cwd=directory)


def checked(command, cwd=None):
    done = subprocess.run(command, cwd=cwd, check=False, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(command)}:\n{done.stderr}"
    return done.stdout


@contextlib.contextmanager
def running(name, command, environment):
    program = shutil.which(command[0], path=os.environ["PATH"] + ":/usr/sbin")
    assert program, f"{command[0]} is missing"
    log = tempfile.TemporaryFile()
    process = subprocess.Popen([program, *command[1:]], env=environment, stdout=log, stderr=log)
    try:
        yield
        assert process.poll() is None, f"{name} has ended"
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            FAILED.append(f"{name}'s end")
        log.seek(0)
        if FAILED:
            print(f"---- {name}", log.read().decode()[-3000:], sep="\n")


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait_for_port(port):
    def listens():
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port), 1).close()
            return True
        return False

    until(listens, 15, f"nothing listens on {port}")


main()
