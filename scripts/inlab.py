"""Runs a script inside a lab of its own, and programs in the lab's nodes. Whatever was started is ended, however this ends."""

import functools
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
INSIDE = "NETLATHE_SCRIPT_INSIDE"   # set for the script that runs in the lab

running = []


class Failed(Exception):
    """A step failed. The message names the step and contains its output."""


@functools.cache
def binary():
    """The program to run: `NETLATHE`, or what `cargo build --release` made; cargo's target folder may be anywhere."""
    path = os.environ.get("NETLATHE")
    if not path:
        line = ["cargo", "metadata", "--no-deps", "--offline", "--format-version", "1"]
        try:
            metadata = subprocess.run(line, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
        except (OSError, subprocess.CalledProcessError) as error:
            raise Failed(f"cargo does not say where its binary is ({error}): name it, as NETLATHE=/path/to/netlathe") from error
        path = os.path.join(json.loads(metadata)["target_directory"], "release", "netlathe")
    if not os.access(path, os.X_OK):
        raise Failed(f"there is no {path}: cargo build --release -p netlathe-cli")
    return os.path.abspath(path)


def text(command):
    """Returns a command as a user would type it."""
    return shlex.join(str(word) for word in command)


def start(command, node=None, **more):
    """Starts a program, in a node of the lab if one is named."""
    command = [str(word) for word in command]
    if node:
        command = [binary(), "lab", "run", "--on", node, "--", *command]
    process = subprocess.Popen(command, **more)
    running.append(process)
    return process


def finish(process, wait_s):
    """Waits until a program ends. Returns its stdout and its stderr."""
    out, error = process.communicate(timeout=wait_s)
    running.remove(process)
    return out or b"", error or b""


def stop(process, wait_s=8):
    """Ends a program as Ctrl-C does, and returns what it printed. That is nothing if the program was waited for before."""
    if process not in running:
        return b"", b""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    try:
        return finish(process, wait_s)
    except subprocess.TimeoutExpired:
        process.kill()
        return finish(process, wait_s)


def ended(process, command, wait_s, fine=(0,)):
    """Returns what a program printed. `fine` are the permitted exit statuses."""
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


def await_line(stream, pattern, what):
    """Reads the output of a program until it reports ready."""
    for line in stream:
        if re.search(pattern, line.decode(errors="replace")):
            return
    raise Failed(f"{what} ended before it was ready")


def await_way(alive, node="client"):
    """Waits until a ping is answered. Returns False if none is in ten seconds, or as soon as `alive()` is false."""
    until = time.monotonic() + 10
    while time.monotonic() < until and alive():
        ping = start(["ping", "-c1", "-W1", os.environ["NETLATHE_SERVER"]], node, stdout=subprocess.DEVNULL)
        finish(ping, 5)
        if ping.returncode == 0:
            return True
    return False


def serve(folder):
    """Starts the servers for programs of the client: iperf3, and a web server of a folder on port 8000."""
    line = [sys.executable, "-u", "-m", "http.server", "-d", folder, "8000"]
    web = start(line, "server", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    await_line(web.stdout, "Serving", "the web server")
    # No line per second, because no program reads the output.
    iperf = start(["iperf3", "-s", "-i", "0", "--forceflush"], "server", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    await_line(iperf.stdout, "listening", "iperf3")


def guarded(name, action):
    """Runs `action()` and returns the status to end with. SIGTERM is like Ctrl-C: what was started is ended.

    Both signals are handled even if they came ignored.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return action() or 0
    except Failed as failure:
        print(f"{name}: {failure}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{name}: interrupted", file=sys.stderr)
        return 130
    finally:
        for process in list(running):
            stop(process)


def within(name, inside, *options):
    """Runs `inside()` in the box of a new lab, by running this script again there, and returns the status to end with."""
    if os.environ.get(INSIDE):
        return guarded(name, inside)

    def enter():
        os.environ.update({INSIDE: "1", "NETLATHE": binary()})
        lab = ["lab", "run", "--name", f"{name}-{os.getpid()}", *options, "--on", "box", "--"]
        os.execv(binary(), [binary(), *lab, sys.executable, *sys.argv])

    return guarded(name, enter)


def run_alone(name, body):
    """Exits with the status of `body`, run as root in mount, PID and network namespaces of its own. `name` begins messages."""
    inside = f"NETLATHE_{name.upper()}_INSIDE"
    try:
        if os.environ.get(inside):
            sys.exit(body())
        if os.geteuid() != 0:
            raise Failed("it makes namespaces, links and mounts: run it as root")
        environment = os.environ | {inside: "1", "NETLATHE": binary()}
        environment.pop("NETLATHE_LAB", None)
        own = ["unshare", "--mount", "--pid", "--net", "--fork", "--mount-proc", "--kill-child", "--", sys.executable, *sys.argv]
        sys.exit(subprocess.run(own, env=environment).returncode)
    except Failed as failure:
        sys.exit(f"{name}: {failure}")
    except KeyboardInterrupt:
        sys.exit(130)
