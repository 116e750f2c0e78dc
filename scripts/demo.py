#!/usr/bin/env python3
"""Unmodified programs through netlathe: what was asked against what arrived, in under a minute.

Runs itself inside a lab of its own (`netlathe lab run`), which is taken down however this ends. There, iperf3 and an
HTTP download go from end to end three times: straight (over a Linux bridge, without netlathe), at a stated rate, and
with a stated gap between departures.
What arrives is measured at the receiving end by `netlathe measure`, from the kernel's stamps.
"""

import functools
import hashlib
import http.server
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
NETLATHE = os.environ.get("NETLATHE", "")
INSIDE = "NETLATHE_DEMO_INSIDE"
PAYLOAD = 1200               # bytes of UDP payload
FRAME = PAYLOAD + 8 + 20 + 14 + 4  # with UDP, IPv4 and Ethernet headers and FCS: what netlathe counts
OFFERED = 80e6               # bits of UDP payload per second
RATE = 50e6                  # bits of frames per second
GAP_US = 250.0
SEGMENT = 1448               # bytes of TCP payload that fill a frame, time stamps on
TCP_FRAME = SEGMENT + 32 + 20 + 14 + 4
STREAM = 40e6                # bits of TCP payload per second
FILE_BYTES = 24 * 1024 * 1024
WARM_S = 1.0                 # until a flow is steady, and TCP out of slow start
WINDOW_S = 1.6               # measured part of a flow
FLOW_S = 3                   # a flow's length: the window fits in


class Failed(Exception):
    """A step did not run; the message says which and what it said."""


running = []


def start(node, *command, **more):
    """Starts a program in a node of the lab."""
    process = subprocess.Popen([NETLATHE, "lab", "run", "--on", node, "--", *map(str, command)], **more)
    running.append(process)
    return process


def stop(process, wait_s=8):
    """Ends a program that we started as Ctrl-C would, and returns its output."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    try:
        return finish(process, wait_s)
    except subprocess.TimeoutExpired:
        process.kill()
        return finish(process, wait_s)


def finish(process, wait_s):
    out, error = process.communicate(timeout=wait_s)
    running.remove(process)
    return out or b"", error or b""


def run(node, *command, wait_s=20):
    """Runs a program in a node to its end and returns what it printed."""
    process = start(node, *command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        out, error = finish(process, wait_s)
    except subprocess.TimeoutExpired:
        stop(process)
        raise Failed(f"`{' '.join(map(str, command))}` on {node} took longer than {wait_s} s") from None
    if process.returncode:
        said = (error or out).decode(errors="replace").strip()
        raise Failed(f"`{' '.join(map(str, command))}` on {node} gave {process.returncode}: {said}")
    return out


def await_way(what):
    """Waits until a ping gets through, both ways; False if none does in ten seconds or `what` says that it ended."""
    until = time.monotonic() + 10
    while time.monotonic() < until and not what():
        answer = start("client", "ping", "-c1", "-W1", os.environ["NETLATHE_SERVER"], stdout=subprocess.DEVNULL)
        finish(answer, 5)
        if answer.returncode == 0:
            return True
    return False


class Straight:
    """A Linux bridge where netlathe would be, for the time of a `with` block."""

    def __enter__(self):
        run("box", "ip", "link", "add", "name", "straight", "type", "bridge")
        for link in (["straight"], ["c0", "master", "straight"], ["s0", "master", "straight"]):
            run("box", "ip", "link", "set", *link, "up")
        if not await_way(lambda: False):
            raise Failed("the bridge carried nothing")
        return self

    def __exit__(self, *_):
        run("box", "ip", "link", "del", "straight")


class Shape:
    """`netlathe shape` in the box, for the time of a `with` block."""

    def __init__(self, *ask, way=("c0", "s0")):
        self.line = [NETLATHE, "shape", "--in", way[0], "--out", way[1], *ask, "--duration", "30s", "--json"]

    def __enter__(self):
        self.process = subprocess.Popen(self.line, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        running.append(self.process)
        if await_way(lambda: self.process.poll() is not None):
            return self
        _, error = stop(self.process)
        raise Failed(f"`{' '.join(self.line)}` carried nothing: {error.decode(errors='replace').strip()}")

    def __exit__(self, kind, *_):
        _, error = stop(self.process)
        if kind is None and self.process.returncode:
            said = error.decode(errors="replace").strip()
            raise Failed(f"`{' '.join(self.line)}` ended with {self.process.returncode}: {said}")


def measured(flow, node="server"):
    """Measures the middle of a flow at its receiver; `flow` is a process that has just been started."""
    time.sleep(WARM_S)
    report = json.loads(run(node, NETLATHE, "measure", "--in", "if:eth0", "--duration", f"{WINDOW_S}s", "--json"))
    if flow is not None:
        _, error = finish(flow, 25)
        if flow.returncode:
            raise Failed(f"the flow ended with {flow.returncode}: {error.decode(errors='replace').strip()}")
    pipeline = report["pipelines"][0]
    if "rate" not in pipeline:
        raise Failed(f"nothing arrived at {node} while it was measured: the machine may be overloaded, try again")
    return pipeline


def iperf(*more):
    return start("client", "iperf3", "-c", os.environ["NETLATHE_SERVER"], *more,
                 stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def udp():
    return iperf("-u", "-b", int(OFFERED), "-l", PAYLOAD, "-t", FLOW_S)


def curl(rate_limited):
    """The download: its whole to be compared, or, where it takes long, as a flow to be measured."""
    url = f"http://{os.environ['NETLATHE_SERVER']}:8000/file"
    line = ["curl", "--silent", "--show-error", "--fail", "--max-time", "20", url]
    if rate_limited:
        return start("client", *line, "--output", "/dev/null", stderr=subprocess.PIPE)
    return run("client", *line)


rows = []


def row(program, asked, got, unit, how):
    """A line of the table: asked and got in the same unit, and the error between them."""
    error = (got - asked) / asked * 100
    rows.append((program, how, f"{asked:,.3f} {unit}", f"{got:,.3f} {unit}", f"{error:+.3f} %"))
    print(f"  {program:14} {how:18} {asked:>14,.3f} {got:>14,.3f}  {unit:7} {error:>+9.3f} %", flush=True)


def experiment(content):
    digest = hashlib.sha256(content).digest()
    mbps = RATE / 1e6
    print(f"  {'program':14} {'netlathe was asked':18} {'asked':>14} {'got':>14}  {'unit':7} {'error':>11}")

    with Straight():
        got = measured(udp())
        row("iperf3 UDP", OFFERED * FRAME / PAYLOAD / 1e6, got["rate"]["mean_bps"] / 1e6, "Mbit/s", "straight")
        got = measured(iperf("-b", int(STREAM), "-l", SEGMENT, "-N", "-t", FLOW_S))
        row("iperf3 TCP", STREAM * TCP_FRAME / SEGMENT / 1e6, got["rate"]["mean_bps"] / 1e6, "Mbit/s", "straight")
        row("curl HTTP", len(content) / 1e6, downloaded(digest) / 1e6, "MB", "straight")

    ask = f"--rate {mbps:.0f}Mbps"
    with Shape(*ask.split()):
        row("iperf3 UDP", mbps, measured(udp())["rate"]["mean_bps"] / 1e6, "Mbit/s", ask)
        row("iperf3 TCP", mbps, measured(iperf("-t", FLOW_S))["rate"]["mean_bps"] / 1e6, "Mbit/s", ask)
    # The file comes from the server, so that is the way to shape, and the client is where it arrives.
    with Shape(*ask.split(), way=("s0", "c0")):
        got = measured(curl(rate_limited=True), node="client")
        row("curl HTTP", mbps, got["rate"]["mean_bps"] / 1e6, "Mbit/s", ask)

    ask = f"--gap {GAP_US:.0f}us"
    with Shape(*ask.split()):
        gap_rows("iperf3 UDP", measured(udp()), ask)
        gap_rows("iperf3 TCP", measured(iperf("-t", FLOW_S)), ask)
    with Shape(*ask.split(), way=("s0", "c0")):
        gap_rows("curl HTTP", measured(curl(rate_limited=True), node="client"), ask)
        row("curl HTTP", len(content) / 1e6, downloaded(digest) / 1e6, "MB", ask)


def gap_rows(program, report, ask):
    """The mean of the gaps, and their median: a mean alone says nothing of evenness."""
    row(program, GAP_US, report["gap"]["mean_ns"] / 1e3, "us mean", ask)
    row("", GAP_US, report["gap"]["p50"] / 1e3, "us p50", "the same")


def downloaded(digest):
    """Downloads the file, compares it with what is served, and gives its length in bytes."""
    content = curl(rate_limited=False)
    if hashlib.sha256(content).digest() != digest:
        raise Failed("the downloaded file differs from the one served")
    return len(content)


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files without a line per request."""

    def log_message(self, *_):
        pass


def serve(folder):
    handler = functools.partial(Quiet, directory=folder)
    server = http.server.ThreadingHTTPServer(("", 8000), handler)
    print("ready", flush=True)
    server.serve_forever()


def await_line(process, pattern, what):
    for line in process.stdout:
        if re.search(pattern, line.decode(errors="replace")):
            return
    raise Failed(f"{what} did not start")


def inside():
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="netlathe-demo-") as folder:
        content = os.urandom(FILE_BYTES)
        with open(os.path.join(folder, "file"), "wb") as file:
            file.write(content)
        web = start("server", sys.executable, os.path.abspath(__file__), "serve", folder, stdout=subprocess.PIPE)
        await_line(web, "ready", "the web server")
        # No line per second: nobody reads them.
        iperf_server = start("server", "iperf3", "-s", "-i", "0", "--forceflush", stdout=subprocess.PIPE,
                             stderr=subprocess.DEVNULL)
        await_line(iperf_server, "listening", "iperf3")
        experiment(content)
    print(f"\n{len(rows)} rows in {time.monotonic() - begin:.0f} s. Rates count whole frames with FCS, measured at the "
          "receiver from the kernel's stamps.")


def built():
    """Where cargo puts the binary: the target folder may be anywhere."""
    line = ["cargo", "metadata", "--no-deps", "--offline", "--format-version", "1"]
    metadata = subprocess.run(line, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
    return os.path.join(json.loads(metadata)["target_directory"], "release", "netlathe")


def main():
    global NETLATHE
    if len(sys.argv) == 3 and sys.argv[1] == "serve":
        signal.signal(signal.SIGINT, lambda *_: os._exit(0))
        serve(sys.argv[2])
        return 0
    if os.environ.get(INSIDE):
        # The box's SIGTERM is like Ctrl-C: the `finally` below must run.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            inside()
            return 0
        except Failed as failure:
            print(f"demo: {failure}", file=sys.stderr)
            return 2
        except KeyboardInterrupt:
            print("demo: interrupted", file=sys.stderr)
            return 130
        finally:
            for process in list(running):
                stop(process)
    NETLATHE = NETLATHE or built()
    if not os.access(NETLATHE, os.X_OK):
        print(f"demo: there is no {NETLATHE}: cargo build --release -p netlathe-cli", file=sys.stderr)
        return 2
    print("client (iperf3, curl) ── c0 [ bridge, then netlathe shape ] s0 ── server (iperf3, http)\n", flush=True)
    os.environ.update({INSIDE: "1", "NETLATHE": NETLATHE})
    name = f"demo-{os.getpid()}"
    line = [NETLATHE, "lab", "run", "--name", name, "--on", "box", "--", sys.executable, os.path.abspath(__file__)]
    os.execv(NETLATHE, line)


if __name__ == "__main__":
    sys.exit(main())
