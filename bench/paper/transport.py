"""What Tables 3 and 4 share: TCP through netlathe in a lab, and what a stage does to each frame on the model line."""

import os
import subprocess
import sys

from inlab import Failed, run, start, stop, text
from programs import Background, kept, netlathe

BUFFER = 32 << 20
TRAFFIC = os.path.join(os.path.dirname(os.path.abspath(__file__)), "traffic.py")


def large_buffers():
    """Every TCP socket at both ends has buffers of 32 MB from its start. (Asking for them by socket option would need a
    setting of the whole machine, this one is the lab's.)"""
    for node in ("client", "server"):
        for which in ("tcp_rmem", "tcp_wmem"):
            run(["sysctl", "-q", "-w", f"net.ipv4.{which}=4096 {BUFFER} {BUFFER}"], node)


class Served:
    """A server on the lab's server node, during a `with` block."""

    def __init__(self, command, ready):
        self.command, self.ready = command, ready

    def __enter__(self):
        self.process = start(self.command, "server", stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        for line in self.process.stdout:
            if self.ready in line.decode(errors="replace"):
                return self
        raise Failed(f"`{text(self.command)}` did not start")

    def __exit__(self, *_):
        stop(self.process)


def answering():
    return Served([sys.executable, TRAFFIC, "serve"], "ready")


def through(stages):
    """`netlathe shape` from the client to the server, with stages; nothing is asked of departures."""
    options = [word for stage in stages for word in ("--stage", stage)]
    return Background("shape", "--in", "c0", "--out", "s0", *options)


def missed(report):
    """Frames that were lost on the way, by whom."""
    (pipeline,) = report["pipelines"]
    lost = dict(pipeline["drops"])
    for port in report["caveats"]:
        if port["kind"] == "port" and port["rx_missed"]:
            lost[f"{port['port']}, before it was counted"] = port["rx_missed"]
    return lost


def capture(name, flows, count, gap):
    """A capture of numbered frames; the flows take turns."""
    path = kept(name)
    netlathe("gen", "--out", f"pcap:{path}", "--count", count, "--gap", gap,
             "--stream", f"udp 10.0.0.1:1000-{999 + flows} > 10.0.0.2:2000 size 64B")
    return path
