#!/usr/bin/env python3
"""Weak-network testing in a lab on this machine: what each impairment does to ping, iperf3 and a download, and a slow
disk to dd and cp.

Runs itself inside a lab of its own (`netlathe lab run`), which is taken down however this ends. The client is behind c0,
the server behind s0, so that forward is client to server and backward is server to client. Takes about five minutes;
`--short` leaves out half of each flow.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time

from inlab import Failed, await_way, binary, finish, run, serve, start, stop, text, within

SERVER = "10.77.0.100"
FILE_BYTES = 8 * 1024 * 1024
TOO_LONG = 28                # curl's status at its time limit: what arrived by then is compared
FLOW_S = 4 if "--short" in sys.argv else 8


def client(*command, wait_s=60, fine=(0,)):
    """Runs a program on the client. Returns what it printed."""
    return run(command, "client", wait_s, fine).decode(errors="replace")


class Emulation:
    """netlathe emulate between client and server, for as long as a block."""

    def __init__(self, *words):
        self.words = words or ("--both", "delay 0ms")
        self.report = {}

    def __enter__(self):
        line = [binary(), "emulate", "--between", "c0", "s0", *self.words, "--json", "--progress", "never"]
        self.process = start(line, "box", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if await_way(lambda: self.process.poll() is None):
            return self
        _, error = stop(self.process)
        raise Failed(f"`emulate {text(self.words)}` carried nothing: {error.decode(errors='replace').strip()}")

    def __exit__(self, *_):
        out, _ = stop(self.process)
        if out.strip():
            self.report = {pipeline["name"]: pipeline for pipeline in json.loads(out)["pipelines"]}


def ping(count=20):
    out = client("ping", "-c", count, "-i", "0.1", "-q", SERVER, fine=(0, 1))
    lost = re.search(r"([\d.]+)% packet loss", out)
    times = re.search(r"= ([\d.]+)/([\d.]+)/([\d.]+)/", out)
    low, mean, high = times.groups() if times else ("-",) * 3
    return f"ping {low} / {mean} / {high} ms (min/mean/max), {lost.group(1) if lost else '?'} % lost"


def iperf(*words, seconds=None, udp=False):
    """Mbit/s at the receiver, and retransmissions."""
    seconds = seconds or FLOW_S
    out = client("iperf3", "-c", SERVER, "-t", seconds, "-O", min(2, seconds // 2), "-J", *words, wait_s=seconds + 90,
                 fine=(0, 1))
    try:
        ended = json.loads(out)["end"]
        rate = ended["sum_received"]["bits_per_second"] / 1e6
        again = ended["sum_sent"].get("retransmits", 0)
        return f"iperf3 {' '.join(words)}{' ' if words else ''}{rate:.3f} Mbit/s, {again} retransmissions"
    except (KeyError, ValueError):
        return "iperf3 " + (json.loads(out).get("error", "failed") if out.strip().startswith("{") else "failed")


def beside(*words):
    """iperf3, and pings while it sends."""
    pings = start(["ping", "-c", str(10 * FLOW_S - 20), "-i", "0.1", "-q", SERVER], "client", stdout=subprocess.PIPE)
    said = iperf(*words, seconds=FLOW_S)
    out, _ = finish(pings, 30)
    client("ping", "-c", 1, "-W", 5, "-q", SERVER)  # queued behind everything that waits: once it is answered, the server is free for the next flow
    times = re.search(r"= ([\d.]+)/([\d.]+)/([\d.]+)/", out.decode(errors="replace"))
    return f"{said}; ping beside it {' / '.join(times.groups()) if times else '-'} ms (min/mean/max)"


def sent_again():
    """Returns the segments that the server has retransmitted so far."""
    lines = [line.split() for line in run(["cat", "/proc/net/snmp"], "server").decode().splitlines() if line.startswith("Tcp:")]
    return int(dict(zip(lines[0], lines[1]))["RetransSegs"])


def download(folder):
    before = sent_again()
    name = os.path.join(folder, "got")
    client("curl", "-s", "-m", "60", "-o", name, f"http://{SERVER}:8000/file", wait_s=90, fine=(0, TOO_LONG))
    with open(name, "rb") as got, open(os.path.join(folder, "file"), "rb") as sent:
        got, sent = got.read(), sent.read()
    wrong = sum(a != b for a, b in zip(got, sent)) + abs(len(got) - len(sent))
    same = hashlib.md5(got).hexdigest() == hashlib.md5(sent).hexdigest()
    return f"download of 8 MiB: md5 {'the same' if same else 'DIFFERENT'}, {wrong} bytes wrong, " \
           f"{sent_again() - before} segments sent again"


def hit(emulation):
    """Describes the frames of each direction, and what was done to them."""
    said = []
    for name, pipeline in emulation.report.items():
        done = {**pipeline["drops"], **pipeline.get("effects", {})}
        what = ", ".join(f"{n} {reason}" for reason, n in done.items()) or "untouched"
        said.append(f"{name}: {pipeline['in']['frames']} frames, {what}")
    return "; ".join(said)


def experiment(title, words, *steps):
    print(f"\n{title}" + (f"\n  emulate {' '.join(repr(w) if ' ' in w else w for w in words)}" if words else ""))
    emulation = Emulation(*words)
    with emulation:
        for step in steps:
            print(f"    {step()}", flush=True)
    if words:
        print(f"    report: {hit(emulation)}", flush=True)


class Disk:
    """netlathe disk, for as long as a block: what is in `backing` is slow in `mount`."""

    def __init__(self, folder, *words):
        self.mount = os.path.join(folder, "slow")
        self.line = [binary(), "disk", "--backing", os.path.join(folder, "fast"), "--mount", self.mount, *words, "--json"]

    def __enter__(self):
        self.process = start(self.line, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        until = time.monotonic() + 10
        while not os.path.ismount(self.mount):
            if self.process.poll() is not None or time.monotonic() > until:
                _, error = stop(self.process)
                raise Failed(f"`{text(self.line[1:])}` mounted nothing: {error.decode(errors='replace').strip()}")
            time.sleep(0.01)
        return self.mount

    def __exit__(self, *_):
        stop(self.process)


def timed(label, *command):
    before = time.monotonic()
    run(command)
    return f"{label}: {time.monotonic() - before:.3f} s"


def slow_disk(folder):
    fast = os.path.join(folder, "fast")
    os.mkdir(fast)
    os.mkdir(os.path.join(folder, "slow"))

    def write(where, blocks):
        return timed(f"dd {blocks}", "dd", "if=/dev/urandom", f"of={where}/f", *blocks.split())

    def copy(where):
        return timed("cp", "cp", f"{where}/f", os.path.join(folder, "got"))

    print(f"\nthe disk as it is\n    {write(fast, 'bs=4k count=100')}", flush=True)
    for title, words, steps in [
        ("a slow disk", ("--delay", "10ms"), [lambda at: write(at, "bs=4k count=100")]),
        ("a disk of 1 MB/s", ("--rate", "1MB/s"), [lambda at: write(at, "bs=64k count=32"), copy]),
    ]:
        print(f"\n{title}\n  disk {' '.join(words)}")
        with Disk(folder, *words) as mount:
            for step in steps:
                print(f"    {step(mount)}", flush=True)


def inside():
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "file"), "wb") as file:
            file.write(os.urandom(FILE_BYTES))
        serve(folder)
        cubic = ("-C", "cubic")
        experiment("Nothing asked: the baseline", (), ping, iperf, lambda: download(folder))
        experiment("10 ± 5 ms", ("--backward", "delay 10ms 5ms"), ping)
        experiment("300 ± 50 ms", ("--backward", "delay 300ms 50ms keep-order"), lambda: ping(10), iperf)
        experiment("20 % loss of the data", ("--forward", "loss 20%"), ping, lambda: iperf(*cubic))
        experiment("20 % loss of the ACKs", ("--backward", "loss 20%"), ping, lambda: iperf(*cubic))
        experiment("corruption that checksums find", ("--backward", "corrupt 1%"), lambda: download(folder))
        experiment("corruption that they do not", ("--backward", "corrupt 0.1% mode checksum-valid"),
                   lambda: download(folder))
        experiment("10 Mbit/s", ("--forward", "rate 10mbit limit 100"), lambda: iperf(*cubic, seconds=2 * FLOW_S))
        experiment("1 Mbit/s", ("--forward", "rate 1mbit limit 50"), lambda: iperf(*cubic, seconds=2 * FLOW_S))
        experiment("a short queue", ("--forward", "rate 10mbit limit 5"), lambda: iperf(*cubic))
        for title, queue in [("a long queue", "limit 1000"), ("one that drops in time", "queue codel"),
                             ("one for each flow", "queue fq_codel")]:
            experiment(title, ("--forward", f"delay 10ms rate 20mbit {queue}"), lambda: beside(*cubic))
        experiment("10 kbit/s", ("--forward", "rate 10kbit limit 20"), lambda: iperf(*cubic, seconds=4 * FLOW_S))
        slow_disk(folder)


if __name__ == "__main__":
    sys.exit(within("weak-network", inside))
