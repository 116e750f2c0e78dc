"""Runs netlathe for the experiments, and records the commands."""

import json
import os
import signal
import subprocess
import tempfile
import time

from inlab import Failed, await_way, binary, ended, run, start, stop, text

SERVER_MAC = "02:77:00:00:00:64"   # of every lab's server
CLIENT_IP = "10.77.0.{}"           # of a lab's client n
SETTLE_S = 2.0                     # by then a receiver has its socket, and the IPv6 of a new lab sends no more


work = tempfile.gettempdir()   # where captures and lists are kept while an experiment runs
seconds = 5                    # how long each program of Tables 3 and 4 runs
REPEATS = 3                    # number of live runs for a median, if a run is short
commands = []   # the netlathe commands, as a user would type them; experiments put them into their results


def emptied(times):
    """Returns the note for a line that ran empty."""
    often = "once" if times == 1 else f"{times:g} times"
    return f"the line ran empty {often}: this machine was busy with something else"


def noted(*arguments):
    """Records a netlathe command for the results, without the path of the working folder."""
    shown = text(["netlathe", *arguments]).replace(work + "/", "")
    if shown not in commands:
        commands.append(shown)


def kept(name):
    """Returns the path of a file that exists while the experiment runs."""
    return os.path.join(work, name)


def netlathe(*arguments, node=None, wait_s=120):
    """Runs a command of netlathe and returns its report. Status 1 is a missed expectation, which the report has."""
    noted(*arguments)
    return json.loads(run([binary(), *arguments, "--json"], node, wait_s, fine=(0, 1)))


def one(report):
    """The only pipeline of a report."""
    (pipeline,) = report["pipelines"]
    return pipeline


class Background:
    """A netlathe command that runs during a `with` block. Its report is available afterwards."""

    def __init__(self, *arguments, node=None, wait_s=30):
        self.arguments, self.node, self.wait_s = arguments, node, wait_s
        self.report = None

    def __enter__(self):
        noted(*self.arguments)
        self.command = [binary(), *self.arguments, "--json"]
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
        """Waits until a ping is answered."""
        if await_way(lambda: self.process.poll() is None, node):
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
    """Whether this netlathe has a stage, by its grammar."""
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
    return subprocess.run([binary(), "check", scenario], capture_output=True, check=False).returncode == 0


def has_option(command, option):
    """Whether a command of this netlathe has an option, by its help."""
    return option.encode() in run([binary(), command, "--help"])
