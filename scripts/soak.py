#!/usr/bin/env python3
"""Sends for T seconds (600) at RATE (200kpps) from `gen` through `emulate` to `measure`, and watches their memory.

Prints the resident memory (RSS) of each program at the start, each minute (ten times if T is less than ten minutes), and
at the end. Status 1 if one of them grows by more than 2 % and 1 MiB after the first interval, in which buffers fill, or if
the counters of a report do not balance. Runs in its own network namespace. Needs root.
"""

import json
import os
import signal
import subprocess
import sys
import time

from chaos import said, unbalanced
from inlab import Failed, binary, run_alone

SECONDS = int(os.environ.get("T") or 600)
RATE = os.environ.get("RATE") or "200kpps"
STREAM = "udp 10.1.0.1:1000-1999 > 10.2.0.1-10.2.0.200:9 size 64B"
GROWTH, SLACK_KIB = 1.02, 1024


def rss_kib(process):
    with open(f"/proc/{process.pid}/status") as file:
        for line in file:
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
    raise Failed(f"process {process.pid} has ended before its time")


def start(*words):
    return subprocess.Popen([binary(), *words, "--json", "--progress", "never"], stdout=subprocess.PIPE)


def soak():
    for near, far in (("a0", "a1"), ("b0", "b1")):
        said("ip", "link", "add", near, "type", "veth", "peer", "name", far)
        for end in (near, far):
            said("sysctl", "-qw", f"net.ipv6.conf.{end}.disable_ipv6=1")
            said("ip", "link", "set", end, "up")
    programs = {"measure": start("measure", "--in", "b1")}
    programs["emulate"] = start("emulate", "--between", "a1", "b0", "--both", "delay 2ms 1ms loss 0.1%")
    time.sleep(2)
    programs["gen"] = start("gen", "--out", "a0", "--stream", STREAM, "--rate", RATE, "--duration", f"{SECONDS + 2}s")
    begin, interval = time.monotonic(), min(60, SECONDS / 10)
    time.sleep(1)
    print(f"soak: {SECONDS} s at {RATE}, RSS in KiB\n{'after':>8}" + "".join(f"{name:>10}" for name in programs))
    seen = []
    while True:
        seen.append({name: rss_kib(process) for name, process in programs.items()})
        after = time.monotonic() - begin
        print(f"{after:6.0f} s" + "".join(f"{kib:10}" for kib in seen[-1].values()), flush=True)
        if after >= SECONDS:
            break
        time.sleep(min(interval, SECONDS - after + 0.1))
    failures = []
    for name in ("gen", "emulate", "measure"):
        programs[name].send_signal(signal.SIGINT)
        report = json.loads(programs[name].communicate(timeout=30)[0])
        frames = sum(pipeline["out"]["frames"] for pipeline in report["pipelines"])
        print(f"{name}: {frames} frames out, {frames / SECONDS / 1e3:.1f} kpps")
        failures += [f"{name}: {entry}" for entry in unbalanced(report)]
        settled = seen[min(1, len(seen) - 1)][name]
        if seen[-1][name] > settled * GROWTH + SLACK_KIB:
            failures.append(f"{name}: RSS grew from {settled} KiB to {seen[-1][name]} KiB")
    for failure in failures:
        print(f"soak: {failure}")
    print(f"soak: {'failed' if failures else 'RSS is flat, the books balance'}")
    return 1 if failures else 0


if __name__ == "__main__":
    run_alone("soak", soak)
