#!/usr/bin/env python3
"""Unmodified programs through netlathe: what was asked against what arrived, in under a minute.

Runs itself inside a lab of its own (`netlathe lab run`), which is taken down however this ends. There, iperf3 and an
HTTP download go from end to end three times: straight (over a Linux bridge, without netlathe), at a stated rate, and
with a stated gap between departures.
What arrives is measured at the receiving end by `netlathe measure`, from the kernel's stamps.
"""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time

from inlab import INSIDE, Failed, await_way, binary, finish, run, serve, start, stop, text, within

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
FLOW_S = 3                   # length of a flow, which contains the window


class Straight:
    """A Linux bridge where netlathe would be, for the time of a `with` block."""

    def __enter__(self):
        run(["ip", "link", "add", "name", "straight", "type", "bridge"], "box")
        for link in (["straight"], ["c0", "master", "straight"], ["s0", "master", "straight"]):
            run(["ip", "link", "set", *link, "up"], "box")
        if not await_way(lambda: True):
            raise Failed("the bridge carried nothing")
        return self

    def __exit__(self, *_):
        run(["ip", "link", "del", "straight"], "box")


class Shape:
    """`netlathe shape` in the box, for the time of a `with` block."""

    def __init__(self, *ask, way=("c0", "s0")):
        self.line = [binary(), "shape", "--in", way[0], "--out", way[1], *ask, "--duration", "30s", "--json"]

    def __enter__(self):
        self.process = start(self.line, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if await_way(lambda: self.process.poll() is None):
            return self
        _, error = stop(self.process)
        raise Failed(f"`{text(self.line)}` carried nothing: {error.decode(errors='replace').strip()}")

    def __exit__(self, kind, *_):
        _, error = stop(self.process)
        if kind is None and self.process.returncode:
            said = error.decode(errors="replace").strip()
            raise Failed(f"`{text(self.line)}` ended with {self.process.returncode}: {said}")


def measured(flow, node="server"):
    """Measures the middle of a flow at its receiver. `flow` is a process that has just been started."""
    time.sleep(WARM_S)
    report = json.loads(run([binary(), "measure", "--in", "if:eth0", "--duration", f"{WINDOW_S}s", "--json"], node))
    if flow is not None:
        _, error = finish(flow, 25)
        if flow.returncode:
            raise Failed(f"the flow ended with {flow.returncode}: {error.decode(errors='replace').strip()}")
    pipeline = report["pipelines"][0]
    if "rate" not in pipeline:
        raise Failed(f"nothing arrived at {node} while it was measured: the machine may be overloaded, try again")
    return pipeline


def iperf(*more):
    return start(["iperf3", "-c", os.environ["NETLATHE_SERVER"], *more], "client",
                 stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def udp():
    return iperf("-u", "-b", int(OFFERED), "-l", PAYLOAD, "-t", FLOW_S)


def curl(rate_limited):
    """Downloads the file and returns it. With a limited rate, only starts the download, to be measured as a flow."""
    url = f"http://{os.environ['NETLATHE_SERVER']}:8000/file"
    line = ["curl", "--silent", "--show-error", "--fail", "--max-time", "20", url]
    if rate_limited:
        return start([*line, "--output", "/dev/null"], "client", stderr=subprocess.PIPE)
    return run(line, "client")


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
    # The file is sent by the server, so shape that direction and measure at the client.
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
    """The mean of the gaps, and their median: the mean alone does not show whether gaps are even."""
    row(program, GAP_US, report["gap"]["mean_ns"] / 1e3, "us mean", ask)
    row("", GAP_US, report["gap"]["p50_ns"] / 1e3, "us p50", "the same")


def downloaded(digest):
    """Downloads the file, compares it with what is served, and gives its length in bytes."""
    content = curl(rate_limited=False)
    if hashlib.sha256(content).digest() != digest:
        raise Failed("the downloaded file differs from the one served")
    return len(content)


def inside():
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="netlathe-demo-") as folder:
        content = os.urandom(FILE_BYTES)
        with open(os.path.join(folder, "file"), "wb") as file:
            file.write(content)
        serve(folder)
        experiment(content)
    print(f"\n{len(rows)} rows in {time.monotonic() - begin:.0f} s. Rates count whole frames with FCS, measured at the "
          "receiver from the kernel's stamps.")


def main():
    if INSIDE not in os.environ:
        print("client (iperf3, curl) ── c0 [ bridge, then netlathe shape ] s0 ── server (iperf3, http)\n", flush=True)
    return within("demo", inside)


if __name__ == "__main__":
    sys.exit(main())
