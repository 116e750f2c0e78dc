"""Runs netlathe, and programs in the nodes of a lab. Whatever was started is ended, however this ends."""

import json
import os
import shlex
import signal
import subprocess
import tempfile
import time

NETLATHE = os.environ.get("NETLATHE", "")
SERVER_MAC = "02:77:00:00:00:64"   # of every lab's server
CLIENT_IP = "10.77.0.{}"           # of a lab's client n
SETTLE_S = 2.0                     # a receiver has its socket by then, and a new lab's IPv6 has fallen silent


class Failed(Exception):
    """A step did not run; the message says which and what it said."""


work = tempfile.gettempdir()   # where captures and lists are kept while an experiment runs
seconds = 5                    # how long each program of Tables 3 and 4 runs
REPEATS = 3                    # live runs of which the median is taken, where one is short
running = []
commands = []   # what netlathe was asked, as one would type it; experiments put it into their results


def start(command, node=None, **more):
    """Starts a program, in a node of the lab if one is named."""
    command = [str(word) for word in command]
    if node:
        command = [NETLATHE, "lab", "run", "--on", node, "--", *command]
    process = subprocess.Popen(command, **more)
    running.append(process)
    return process


def finish(process, wait_s):
    """Waits for the end of a program, and returns what it printed."""
    out, error = process.communicate(timeout=wait_s)
    running.remove(process)
    return out or b"", error or b""


def stop(process, wait_s=8):
    """Ends a program as Ctrl-C would, and returns what it printed; one that was seen to its end has nothing more to say."""
    if process not in running:
        return b"", b""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    try:
        return finish(process, wait_s)
    except subprocess.TimeoutExpired:
        process.kill()
        return finish(process, wait_s)


def stop_all():
    for process in list(running):
        stop(process)


def text(command):
    """A command as one would type it."""
    return shlex.join(str(word) for word in command)


def ended(process, command, wait_s, fine=(0,)):
    """What a program printed; `fine` are the statuses that it may end with."""
    try:
        out, error = finish(process, wait_s)
    except subprocess.TimeoutExpired:
        stop(process)
        raise Failed(f"`{text(command)}` took longer than {wait_s} s") from None
    if process.returncode not in fine:
        said = (error or out).decode(errors="replace").strip().splitlines() or ["nothing"]
        raise Failed(f"`{text(command)}` ended with {process.returncode}: {said[-1]}")
    return out


def run(command, node=None, wait_s=30, fine=(0,)):
    """Runs a program to its end and returns what it printed."""
    process = start(command, node, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    return ended(process, command, wait_s, fine)


def emptied(times):
    """What to say of a line that ran empty."""
    often = "once" if times == 1 else f"{times:g} times"
    return f"the line ran empty {often}: this machine was busy with something else"


def noted(*arguments):
    """Notes a command of netlathe for the results, without the folder of our own files in it."""
    shown = text(["netlathe", *arguments]).replace(work + "/", "")
    if shown not in commands:
        commands.append(shown)


def kept(name):
    """Where a file of this experiment is, while it runs."""
    return os.path.join(work, name)


def netlathe(*arguments, node=None, wait_s=120):
    """Runs a command of netlathe and returns its report. Status 1 is a missed expectation, which the report has."""
    noted(*arguments)
    return json.loads(run([NETLATHE, *arguments, "--json"], node, wait_s, fine=(0, 1)))


def one(report):
    """The only pipeline of a report."""
    (pipeline,) = report["pipelines"]
    return pipeline


class Background:
    """A command of netlathe that runs during a `with` block. Its report is there afterwards."""

    def __init__(self, *arguments, node=None, wait_s=30):
        self.arguments, self.node, self.wait_s = arguments, node, wait_s
        self.report = None

    def __enter__(self):
        noted(*self.arguments)
        self.command = [NETLATHE, *self.arguments, "--json"]
        self.process = start(self.command, self.node, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        return self

    def __exit__(self, kind, *_):
        if kind is not None:
            stop(self.process)
            return
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        self.report = json.loads(ended(self.process, self.command, self.wait_s, fine=(0, 1)))

    def await_way(self, node="client"):
        """Waits until a ping gets through, both ways."""
        until = time.monotonic() + 10
        ping = ["ping", "-c1", "-W1", os.environ["NETLATHE_SERVER"]]
        while time.monotonic() < until and self.process.poll() is None:
            asked = start(ping, node, stdout=subprocess.DEVNULL)
            finish(asked, 5)
            if asked.returncode == 0:
                return
        if self.process.poll() is not None:
            ended(self.process, self.command, 1)
        raise Failed(f"`{text(self.command)}` carried nothing in ten seconds")


def received(*arguments, sender):
    """The report of `netlathe measure` on the lab's server while netlathe sends from the box, and the sender's."""
    measure = ["measure", "--in", "if:eth0", *arguments]
    with Background(*measure, node="server") as receiver:
        time.sleep(SETTLE_S)
        sent = netlathe(*sender)
        time.sleep(0.3)
    return one(receiver.report), sent


def has_stage(stage):
    """Whether this netlathe has a stage, as its grammar tells."""
    scenario = os.path.join(work, "stage.toml")
    with open(scenario, "w", encoding="utf-8") as file:
        file.write(f"""schema = 1
[[pipeline]]
name   = "try"
stream = "udp 10.0.0.1:1 > 10.0.0.2:1"
count  = 1
out    = "null"
stages = ["{stage}"]
""")
    return subprocess.run([NETLATHE, "check", scenario], capture_output=True, check=False).returncode == 0


def has_option(command, option):
    """Whether a command of this netlathe has an option, as its help tells."""
    return option.encode() in run([NETLATHE, command, "--help"])
