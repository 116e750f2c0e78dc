"""What Tables 3 and 4 share: TCP through netlathe in a lab, and what a stage does to each frame on the model line."""

import os
import subprocess
import sys

from inlab import Failed, run, start, stop, text
from programs import Background, kept, netlathe

BUFFER = 32 << 20
TRAFFIC = os.path.join(os.path.dirname(os.path.abspath(__file__)), "traffic.py")


def large_buffers():
    """Gives every new TCP socket at both ends buffers of 32 MB. (A socket option would need a setting of the whole
    machine; this setting is the lab's.)"""
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
    """Runs `netlathe shape` from the client to the server with stages and without a schedule."""
    options = [word for stage in stages for word in ("--stage", stage)]
    return Background("shape", "--in", "c0", "--out", "s0", *options)


def missed(report):
    """Returns the frames lost on the way, by where they were lost."""
    (pipeline,) = report["pipelines"]
    lost = dict(pipeline["drops"])
    for port in report["caveats"]:
        if port["kind"] == "port" and port["rx_missed"]:
            lost[f"{port['port']}, before it was counted"] = port["rx_missed"]
    return lost


def capture(name, flows, count, gap):
    """Writes a capture of numbered frames of several flows in turn."""
    path = kept(name)
    netlathe("gen", "--out", f"pcap:{path}", "--count", count, "--gap", gap,
             "--stream", f"udp 10.0.0.1:1000-{999 + flows} > 10.0.0.2:2000 size 64B")
    return path
