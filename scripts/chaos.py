#!/usr/bin/env python3
"""Runs netlathe commands under random faults, and checks the machine after each run.

After each run:
- the counters of the report balance: in + copies = out + drops + held, and a capture has as many whole records as `out`;
- nothing is left: links, addresses, programs on interfaces, namespaces, mounts, processes, records in /run/netlathe.
  After SIGKILL, what the documented clean-up command removes may be left until then;
- the host, a namespace with an address of its own, answers pings;
- the run ended in time, by no panic, with the status and message that the documents promise.

RUNS (200), COMMANDS (names of functions here, all) and SEED (random, printed) choose the runs; RUN=N repeats the run with this number alone. Everything happens
in namespaces of this script (mounts, processes, networks), which the kernel removes with it. Wants root.
"""

import ctypes
import json
import os
import random
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

from inlab import Failed, binary, run_alone, text

HOST_ADDRESS, FAR_ADDRESS = "10.88.0.1", "10.88.0.2"
PAIRS = (("a0", "a1"), ("b0", "b1"))
RUN_S = 2
# A run ends within a second of its signal or its end. On a busy machine it may take longer, so the limit is far above that.
PATIENCE_S = 10
SMALL = "64k"                    # of the disk that fills up
STREAM = "udp 10.1.0.1:1000 > 10.2.0.1-10.2.0.9:9 size 200B"
LIBC = ctypes.CDLL(None, use_errno=True)
BPF = {"x86_64": 321, "aarch64": 280}.get(os.uname().machine)
TCX = {"ingress": 46, "egress": 47}
BPF_PROG_QUERY = 16


def said(*command, check=True):
    """What a program printed."""
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if check and done.returncode != 0:
        raise Failed(f"`{text(command)}` ended with {done.returncode}: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout.decode(errors="replace")


def within(node):
    return ["ip", "netns", "exec", node]


# The network

def make_pair(near, far):
    said(*within("host"), "ip", "link", "add", near, "type", "veth", "peer", "name", far)
    for end in (near, far):
        said(*within("host"), "ethtool", "-K", end, "tx", "off", "tso", "off", "gso", "off", "gro", "off")
        said(*within("host"), "ip", "link", "set", end, "up")


def make_uplink():
    said("ip", "link", "add", "eth0", "netns", "host", "type", "veth", "peer", "name", "eth0", "netns", "far")
    for node, address in (("host", HOST_ADDRESS), ("far", FAR_ADDRESS)):
        said(*within(node), "ip", "address", "add", f"{address}/24", "dev", "eth0")
        said(*within(node), "ip", "link", "set", "eth0", "up")


def make_network():
    """The host with its uplink and two pairs of test ports, and a machine at the far end of the uplink."""
    for node in ("host", "far"):
        said("ip", "netns", "add", node)
        said(*within(node), "sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.default.disable_ipv6=1")
        said(*within(node), "ip", "link", "set", "lo", "up")
    make_uplink()
    for pair in PAIRS:
        make_pair(*pair)


def mend_network():
    """Recreates what a run has deleted."""
    there = said(*within("host"), "ip", "-br", "link")
    if "eth0" not in there:
        make_uplink()
    for near, far in PAIRS:
        if near + "@" not in there and far + "@" not in there:
            make_pair(near, far)
    for name in ("eth0", *sum(PAIRS, ())):
        said(*within("host"), "ip", "link", "set", name, "up")


def reachable(within_s=2.0):
    until = time.monotonic() + within_s
    while True:
        ping = [*within("far"), "ping", "-c1", "-W1", "-q", HOST_ADDRESS]
        if subprocess.run(ping, stdout=subprocess.DEVNULL).returncode == 0:
            return True
        if time.monotonic() > until:
            return False


# What there is on the machine

def programs_at_tc(node):
    """How many BPF programs sit at the tcx hooks of a node's interfaces."""
    if not BPF:
        return []
    own, other = os.open("/proc/self/ns/net", os.O_RDONLY), os.open(f"/run/netns/{node}", os.O_RDONLY)
    found = []
    try:
        if LIBC.setns(other, 0) != 0:
            raise Failed("cannot enter a namespace: run as root")
        for index, name in socket.if_nameindex():
            for hook, number in TCX.items():
                query = ctypes.create_string_buffer(struct.pack("=IIIIQIIQQQQ", index, number, 0, 0, 0, 0, 0, 0, 0, 0, 0))
                if LIBC.syscall(BPF, BPF_PROG_QUERY, query, len(query)) == 0:
                    count = struct.unpack_from("=IIIIQI", query.raw)[5]
                    found += [f"{node}: a program at {hook} of {name}"] * count
    finally:
        LIBC.setns(own, 0)
        os.close(own)
        os.close(other)
    return found


def links(node):
    found = []
    at = within(node) if node else []
    for link in json.loads(said(*at, "ip", "-d", "-j", "address", "show")):
        flags = ",".join(sorted(set(link["flags"]) - {"LOWER_UP", "NO-CARRIER", "M-DOWN"}))
        addresses = ",".join(entry["local"] for entry in link["addr_info"])
        found.append(f"{node}: link {link['ifname']} mtu {link['mtu']} {flags} promiscuity {link['promiscuity']} "
                     f"queueing {link.get('qdisc')} addresses [{addresses}]")
        if "xdp" in link:
            found.append(f"{node}: xdp on {link['ifname']}")
        if link["ifname"] != "lo":
            offloads = said(*at, "ethtool", "-k", link["ifname"])
            found.append(f"{node}: offloads of {link['ifname']} {hash(offloads):x}")
    return found


def processes():
    """All processes but this one, which is the first of its namespace or the child of the first."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat") as file:
                state = file.read().rsplit(")", 1)[1].split()[0]
            with open(f"/proc/{name}/cmdline", "rb") as file:
                line = file.read().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            continue
        if int(name) not in (1, os.getpid()) and state != "Z":
            found.append(f"process {name}: {line}")
    return found


def machine():
    with open("/proc/self/mounts") as file:
        # Each namespace is a mount too. Ours are listed below, and those of other programs come and go.
        mounts = [line.split() for line in file]
    found = {f"mount {mount[1]} {mount[2]}" for mount in mounts if not mount[1].startswith("/run/netns/")}
    found |= {f"namespace {name}" for name in os.listdir("/run/netns")}
    found |= {f"folder {name}" for name in os.listdir(os.environ["XDG_RUNTIME_DIR"]) if name.startswith("netlathe")}
    found |= {f"record {os.path.join(at, name)}" for at, _, files in os.walk("/run/netlathe") for name in files}
    if os.path.isdir("/sys/fs/bpf"):
        found |= {f"pinned {name}" for name in os.listdir("/sys/fs/bpf")}
    found |= set(processes())
    for node in (None, "host", "far"):
        found |= set(links(node))
    return found | set(programs_at_tc("host"))


def difference(before):
    now = machine()
    return sorted([f"left: {line}" for line in now - before] + [f"gone: {line}" for line in before - now])


def settled(before):
    """Returns the differences once they stop shrinking, because the kernel removes some things with a delay."""
    until = time.monotonic() + 3
    while True:
        differs = difference(before)
        if not differs or time.monotonic() > until:
            return differs
        time.sleep(0.1)


# The commands

class Case:
    """A command line, and what goes with it."""

    def __init__(self, name, words, ports=(), feed=None, clean=None, capture=None, on=False):
        self.name, self.words, self.ports = name, [str(word) for word in words], ports
        self.feed = feed            # a program that causes work for it
        self.clean = clean          # the command that removes what a killed run leaves
        self.capture = capture      # a file with as many records as frames were sent
        self.on = on                # it carries the host's traffic


def feed_frames():
    return [*within("host"), binary(), "gen", "--out", "if:a0,driver=af_packet", "--stream", STREAM, "--rate", "20kpps",
            "--duration", "30s", "-q", "--progress", "never"]


def driver(rng, port):
    return rng.choice([port, f"if:{port},driver=af_packet", f"if:{port},driver=af_xdp"])


def gen(rng, folder):
    words = ["gen", "--out", driver(rng, "a0"), "--stream", STREAM, "--rate", f"{rng.choice([1, 20, 100])}kpps"]
    if rng.random() < 0.5:
        words += ["--in", driver(rng, "a1")]
    return Case("gen", [*words, "--stats", f"{folder}/stats", "--stats-every", "100ms"], ("a0", "a1"))


def gen_file(rng, folder):
    capture = f"{folder}/out.pcap"
    words = ["gen", "--out", f"pcap:{capture}", "--stream", STREAM, "--count", rng.choice([1_000, 3_000_000])]
    return Case("gen to a file", words, capture=capture)


def shape(rng, folder):
    how = rng.choice([["--rate", "10Mbps"], ["--gap", "exp mean 100us"], ["--delay", "20ms 2ms normal"], ["--rate", "5Mbps", "--one-way"]])
    words = ["shape", "--in", driver(rng, "a1"), "--out", driver(rng, "b0"), *how]
    return Case("shape", [*words, "--stats", f"{folder}/stats"], ("a1", "b0", "b1"), feed_frames())


def shape_file(rng, folder):
    capture = f"{folder}/shaped.pcap"
    words = ["shape", "--in", f"pcap:{folder}/../frames.pcap", "--out", f"pcap:{capture}", "--gap", "fixed 10us"]
    return Case("shape of a file", words, capture=capture)


def between(rng, folder):
    spec = rng.choice(["delay 20ms 5ms loss 1%", "rate 10mbit limit 100", "duplicate 5% corrupt 1%", "delay 100ms reorder 10%"])
    words = ["emulate", "--between", driver(rng, "a1"), driver(rng, "b0"), "--both", spec]
    words += rng.choice([[], ["--decisions", f"{folder}/decisions"], ["--stats", f"{folder}/stats"]])
    return Case("emulate --between", words, ("a1", "b0", "b1"), feed_frames())


def on(rng, folder):
    spec = rng.choice(["delay 20ms", "loss 10%", "rate 2mbit", "delay 10ms duplicate 5%"])
    words = ["emulate", "--on", "eth0", "--both", spec, *rng.choice([[], ["--decisions", f"{folder}/decisions"]])]
    feed = [*within("far"), "ping", "-i", "0.01", "-q", HOST_ADDRESS]
    return Case("emulate --on", words, ("eth0",), feed, on=True)


def limit(rng, folder):
    mode = rng.choice(["police", "shape", "mark"])
    words = ["limit", "--in", driver(rng, "a1"), "--out", driver(rng, "b0"), "--key", "dst-ip", "--rate", "1Mbps", "--mode", mode]
    words += rng.choice([[], ["--workers", 2], ["--by-user", f"{folder}/users.csv", "--idle", "3600s"]])
    return Case("limit", words, ("a1", "b0", "b1"), feed_frames())


def measure(rng, folder):
    words = ["measure", "--in", "a1", *rng.choice([["--write", f"{folder}/seen.pcap"], ["--stats", f"{folder}/stats"], ["--csv", f"{folder}/gaps.csv"]])]
    return Case("measure", words, ("a0", "a1"), feed_frames())


def measure_host(rng, _folder):
    return Case("measure --host", ["measure", "--host", "a1,eth0", "--interval", f"{rng.choice([10, 100])}ms"], ("a1",), feed_frames())


def search(rng, folder):
    words = ["search", "--out", "a0", "--in", "a1", "--trial", "100ms", "--max", "20kpps", "--size", "64B", "--wait", "100ms"]
    return Case("search", [*words, *rng.choice([[], ["--trials", f"{folder}/trials"]])], ("a0", "a1"))


def disk(rng, folder):
    for name in ("backing", "mount"):
        os.mkdir(f"{folder}/{name}")
    words = ["disk", "--backing", f"{folder}/backing", "--mount", f"{folder}/mount", "--delay", f"{rng.choice([0, 1, 50])}ms"]
    words += rng.choice([[], ["--cached"], ["--error", "write eio 5%"], ["--rate", "1MB/s"]])
    work = f"while :; do dd if=/dev/zero of={folder}/mount/file bs=4k count=100 conv=fsync; done"
    clean = [binary(), "disk", "--unmount", f"{folder}/mount"]
    return Case("disk", words, feed=["sh", "-c", work], clean=clean)


def slice_kernel(rng, folder):
    program = ("import socket,time;s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM);s.bind(('127.0.0.1',0));e=time.time()+2\n"
               "while time.time()<e: s.sendto(b'x'*99,s.getsockname());s.recv(99);time.sleep(0.001)")
    words = ["slice", "kernel", *rng.choice([[], ["-w", f"{folder}/records"], ["--each", "lines", "-q"]])]
    return Case("slice kernel", [*words, "--", sys.executable, "-c", program])


def slice_pipeline(_rng, folder):
    words = ["slice", "pipeline", "--", "emulate", "--in", f"pcap:{folder}/../frames.pcap", "--out", "null", "--forward", "delay 1ms"]
    return Case("slice pipeline", words)


def run(rng, folder):
    with open(f"{folder}/scenario.toml", "w") as file:
        file.write(f'schema = 1\n[[pipeline]]\nname = "down"\nin = "{driver(rng, "a1")}"\nout = "{driver(rng, "b0")}"\n'
                   f'stages = ["delay 5ms", "loss 1%"]\nrate = "10Mbps"\n')
    return Case("run", ["run", f"{folder}/scenario.toml"], ("a1", "b0", "b1"), feed_frames())


CLIENT = """
import http.client, json, socket, sys, time
class Unix(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(sys.argv[1])
while True:
    for method, path, kind, body in json.loads(sys.argv[2]):
        try:
            client = Unix("localhost", timeout=5)
            client.request(method, path, body, {"Content-Type": kind})
            client.getresponse().read()
        except (OSError, http.client.HTTPException):
            pass
        time.sleep(0.05)
"""


def client(socket_path, requests):
    """Returns a program that repeats these requests."""
    return [sys.executable, "-c", CLIENT, socket_path, json.dumps(requests)]


def serve(rng, folder):
    scenario = (f'schema = 1\nduration = "1s"\n[[pipeline]]\nname = "g"\nstream = "{STREAM}"\n'
                f'out = "{driver(rng, "a0")}"\nrate = "{rng.choice([1, 20])}kpps"\n')
    requests = [("POST", "/v1/runs", "application/toml", scenario), ("GET", "/v1/runs", "", ""), ("GET", "/metrics", "", "")]
    words = ["serve", "--listen", f"unix:{folder}/s.sock", "--most", 2]
    # The next service removes what a killed one has left.
    clean = ["timeout", "-s", "INT", "2", binary(), "serve", "--listen", f"unix:{folder}/clean.sock"]
    return Case("serve", words, ("a0", "a1"), client(f"{folder}/s.sock", requests), clean=clean)


def otg(rng, folder):
    flow = {"name": "f", "tx_rx": {"choice": "port", "port": {"tx_name": "t", "rx_names": ["r"]}}, "metrics": {"enable": True},
            "packet": [{"choice": "ethernet", "ethernet": {}}], "rate": {"choice": "pps", "pps": rng.choice([100, 20_000])}}
    config = {"ports": [{"name": "t", "location": "p1"}, {"name": "r", "location": "p2"}], "flows": [flow],
              "captures": [{"name": "c", "port_names": ["r"]}]}
    start = {"choice": "traffic", "traffic": {"choice": "flow_transmit", "flow_transmit": {"state": "start"}}}
    requests = [("POST", path, "application/json", json.dumps(body)) for path, body in
                (("/config", config), ("/control/state", start), ("/monitor/metrics", {"choice": "flow"}))]
    words = ["otg", "--listen", f"unix:{folder}/o.sock", "--ports", "p1=a0,p2=a1"]
    return Case("otg", words, ("a0", "a1"), client(f"{folder}/o.sock", requests))


def clock(_rng, _folder):
    send_any = ("import os,random,socket,time;s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\n"
                "while True: s.sendto(os.urandom(random.choice([0,63,64,65,1000])),('127.0.0.1',47100));time.sleep(0.001)")
    return Case("clock", ["clock", "--answer"], feed=[*within("host"), sys.executable, "-c", send_any])


def run_in_lab(_rng, folder):
    with open(f"{folder}/scenario.toml", "w") as file:
        file.write(f"""schema = 1
[lab]
[[program]]
name = "p"
namespace = "server"
command = ["sh", "-c", "setsid sleep {RUN_S} & env -i setsid sleep {RUN_S} & trap '' TERM; sleep {RUN_S}"]
[[pipeline]]
name = "down"
in = "s0"
out = "c0"
stages = ["delay 1ms"]
""")
    return Case("run with a lab", ["run", f"{folder}/scenario.toml"])


def lab(_rng, _folder):
    name = f"chaos{os.getpid()}"
    words = ["lab", "run", "--name", name, "--", binary(), "shape", "--in", "c0", "--out", "s0", "--rate", "1Mbps", "--duration", f"{RUN_S}s", "--json"]
    return Case("lab run", words, clean=[binary(), "lab", "down", name])


COMMANDS = [gen, gen_file, shape, shape_file, between, on, limit, measure, measure_host, search, disk, slice_kernel,
            slice_pipeline, run, serve, otg, clock, run_in_lab, lab]
# Commands that take the options of a run. The others end by themselves.
WITH_DURATION = {"gen", "shape", "emulate --between", "emulate --on", "limit", "measure", "measure --host", "disk", "run", "clock",
                 "run with a lab"}
WITHOUT_JSON = {"lab run", "serve", "otg"}
# Commands that end only by a signal.
WITHOUT_END = {"serve", "otg"}


# The faults: each acts on a running process and names what it did

class Fault:
    """A fault that is injected into a run. `limits` are options of prlimit."""

    def __init__(self, name, act=None, signals=(), small=False, stalled=False, limits=None):
        self.name, self.act, self.signals = name, act, signals
        self.small, self.stalled, self.limits = small, stalled, limits or (lambda _rng: [])


def send(*names):
    def act(rng, process, _case):
        for number, name in enumerate(names):
            if number:
                time.sleep(rng.choice([0.05, 0.7]))
            process.send_signal(getattr(signal, name))
        return []
    return act


def stop_and_go(rng, process, case):
    process.send_signal(signal.SIGSTOP)
    begun = time.monotonic()
    lost = case.on and not reachable(2)
    time.sleep(max(0, rng.uniform(0.2, 2.0) - (time.monotonic() - begun)))
    process.send_signal(rng.choice([signal.SIGCONT, signal.SIGKILL]))
    return ["the host is off the network while the process is stopped"] if lost else []


def flap(rng, _process, case):
    for _ in range(rng.randint(1, 5)):
        port = rng.choice(case.ports)
        said(*within("host"), "ip", "link", "set", port, "down")
        time.sleep(rng.choice([0, 0.01, 0.3]))
        said(*within("host"), "ip", "link", "set", port, "up")
        time.sleep(rng.choice([0, 0.05]))
    return []


def delete(rng, _process, case):
    said(*within("host"), "ip", "link", "delete", rng.choice(case.ports))
    return []


FAULTS = [
    Fault("none"),
    Fault("SIGKILL", send("SIGKILL")),
    Fault("SIGTERM", send("SIGTERM")),
    Fault("SIGINT", send("SIGINT")),
    Fault("SIGHUP", send("SIGHUP")),
    Fault("SIGINT twice", send("SIGINT", "SIGINT")),
    Fault("SIGSTOP", stop_and_go),
    Fault("link flaps", flap),
    Fault("link deleted", delete),
    Fault("full disk", small=True),
    Fault("few descriptors", limits=lambda rng: [f"--nofile={rng.randint(4, 60)}"]),
    Fault("little memory", limits=lambda rng: [f"--as={int(10 ** rng.uniform(7.3, 9.3))}"]),
    Fault("stalled reader", send("SIGINT"), stalled=True),
]


def unbalanced(value, at="report"):
    """Returns where in + copies = out + drops + held is violated."""
    if isinstance(value, list):
        for number, entry in enumerate(value):
            yield from unbalanced(entry, f"{at}[{number}]")
    if not isinstance(value, dict):
        return
    if all(isinstance(value.get(key), dict) for key in ("in", "out", "drops")) and "frames" in value["in"]:
        came = value["in"]["frames"] + value.get("copies", 0)
        went = value["out"]["frames"] + sum(value["drops"].values()) + value.get("held", 0)
        if came != went:
            yield f"{at}: in + copies = {came}, out + drops + held = {went}"
    for key, entry in value.items():
        yield from unbalanced(entry, f"{at}.{key}")


def records(path):
    """Returns the number of whole records of a classic capture, and whether it ends within a record."""
    with open(path, "rb") as file:
        bytes_ = file.read()
    at, count = 24, 0
    while at + 16 <= len(bytes_):
        length = struct.unpack_from("<I", bytes_, at + 8)[0]
        if at + 16 + length > len(bytes_):
            return count, True
        at, count = at + 16 + length, count + 1
    return count, at != len(bytes_) and len(bytes_) != 0


def stall(words, folder, rng):
    """Replaces one of the files that the command writes by a pipe whose reader never reads."""
    files = [word for word in words if word.startswith(f"{folder}/") and not word.endswith((".toml", "backing", "mount"))]
    if not files:
        return None
    path = rng.choice(files)
    # `emulate` adds the direction to the name of a log.
    paths = [f"{path}-forward", f"{path}-backward"] if path.endswith("decisions") else [path]
    for name in paths:
        os.mkfifo(name)
    return [os.open(name, os.O_RDONLY | os.O_NONBLOCK) for name in paths] if rng.random() < 0.7 else []


def judge(process, case, fault, error, out, limits):
    """Returns what is wrong with the end of a run."""
    found = []
    status, message = process.returncode, error.strip().splitlines()
    signals = {-getattr(signal, name) for name in ("SIGKILL", "SIGTERM", "SIGINT", "SIGHUP")}
    if "panicked" in error or status in (101, -signal.SIGABRT, -signal.SIGSEGV, -signal.SIGBUS):
        found.append(f"it ended by a panic or abort: status {status}: {error.strip()[-600:]}")
    elif status in signals:
        if not fault.act:
            found.append(f"it was ended by signal {-status}, which this script did not send")
        elif out.strip() and status != -signal.SIGKILL:
            found.append(f"a report, and yet ended by signal {-status}")
    elif case.name in ("lab run", "run with a lab") and fault.act and -(status - 128) in signals:
        pass    # the status of its command, or of a run that the signal reached before it began
    elif status not in (0, 1, 2, 127 if limits else 2) and not (status == 130 and fault.name == "SIGINT twice"):
        found.append(f"status {status}: {message[-1:]}")
    elif status == 2 and not any(line.startswith("netlathe: ") for line in message) and not limits:
        found.append(f"status 2 without a message: {message[-1:]}")
    elif status == 2 and not fault.limits and fault.name in ("none", "SIGTERM", "SIGINT", "SIGHUP", "stalled reader", "link flaps"):
        found.append(f"status 2: {message[-1:]}")
    if out.strip() and case.name not in WITHOUT_JSON and "--each" not in case.words:
        try:
            report = json.loads(out)
        except ValueError:
            found.append(f"no JSON on stdout: {out[:200]!r}")
        else:
            found += unbalanced(report)
            if case.capture and os.path.exists(case.capture):
                count, torn = records(case.capture)
                gone = report["pipelines"][0]["out"]["frames"]
                if torn or count != gone:
                    found.append(f"the capture has {count} records{' and a torn one' if torn else ''}, the report says out {gone}")
    elif status == 0 and not out.strip() and case.name not in WITHOUT_JSON and "-q" not in case.words:
        found.append("status 0 without a report")
    return found


def one(number, seed, base):
    """Makes one run. Returns its name, its command line, and the findings."""
    rng = random.Random(f"{seed}/{number}")
    folder = tempfile.mkdtemp(dir=base)
    only = os.environ.get("COMMANDS", "").split()
    make = rng.choice([command for command in COMMANDS if not only or command.__name__ in only])
    fault = rng.choice(FAULTS)
    if fault.small:
        said("mount", "-t", "tmpfs", "-o", f"size={SMALL}", "tmpfs", folder)
    case = make(rng, folder)
    if fault.act in (flap, delete) and not case.ports:
        fault = FAULTS[1]
    words = case.words
    if case.name not in WITHOUT_JSON:
        head = 2 if words[0] == "slice" else 1
        words = [*words[:head], "--json", *words[head:]]
        if case.name in WITH_DURATION:
            words += ["--duration", f"{RUN_S}s"]
    limits = fault.limits(rng)
    line = [binary(), *words]
    found, open_ends = [], None
    before = machine()
    if fault.stalled:
        open_ends = stall(case.words, folder, rng)
    feed = subprocess.Popen(case.feed, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True) if case.feed else None
    with open(f"{base}/stdout", "w+b") as out, open(f"{base}/stderr", "w+b") as error:
        prefix = ["prlimit", *limits] if limits else []
        process = subprocess.Popen([*within("host"), *prefix, *line], stdin=subprocess.DEVNULL, stdout=out, stderr=error)
        try:
            time.sleep(rng.choice([rng.uniform(0, 0.2), rng.uniform(0, 1.8)]))
            if fault.act and process.poll() is None:
                found += fault.act(rng, process, case)
            if not case.on and "eth0" not in case.ports and not reachable():
                found.append("the host does not answer pings during the run")
            if case.name == "search" or case.name in WITHOUT_END:
                # Each trial of a search starts a process, so a whole search takes half a minute on a busy machine.
                try:
                    process.wait(timeout=RUN_S)
                except subprocess.TimeoutExpired:
                    process.send_signal(signal.SIGINT)
            process.wait(timeout=RUN_S + PATIENCE_S + (20 if case.name == "lab run" else 0))
        except subprocess.TimeoutExpired:
            found.append(f"it did not end within {PATIENCE_S} s of its time")
            process.kill()
            process.wait()
        finally:
            if feed:
                os.killpg(feed.pid, signal.SIGINT if "gen" in case.feed else signal.SIGKILL)
                feed.wait()
        out.seek(0), error.seek(0)
        stdout, stderr = out.read().decode(errors="replace"), error.read().decode(errors="replace")
    found += judge(process, case, fault, stderr, stdout, limits)
    for end in open_ends or []:
        os.close(end)
    mend_network()
    deleted = fault.act is delete
    if process.returncode == -signal.SIGKILL or deleted or fault.name == "SIGINT twice":
        clean_up(case)
    left = [line for line in settled(before) if not (deleted and ("link" in line or "offloads" in line))]
    found += left
    if left and case.clean:
        said(*case.clean, check=False)
    if not reachable():
        found.append("the host does not answer pings after the run")
    if fault.small:
        said("umount", "-l", folder)
    shutil.rmtree(folder, ignore_errors=True)
    return f"{case.name}, {fault.name}", " ".join(["netlathe", shlex.join(words), *limits]), process.returncode, found


def clean_up(case):
    """Does what the documents prescribe for what a killed run leaves.

    The next run on an interface removes the XDP program of a killed run, and each run with XDP removes the records of
    programs that are gone.
    """
    if case.clean:
        said(*case.clean, check=False)
    ports = {line.split()[-1] for line in links("host") if line.startswith("host: xdp on ")}
    if ports or os.path.isdir("/run/netlathe/xdp") and os.listdir("/run/netlathe/xdp"):
        for port in ports or {"a0"}:
            line = ["gen", "--out", f"if:{port},driver=af_xdp", "--stream", STREAM, "--count", 1, "-q"]
            said(*within("host"), binary(), *line, check=False)


def chaos():
    seed = os.environ.get("SEED") or str(random.SystemRandom().randrange(10**6))
    runs = int(os.environ.get("RUNS") or 200)
    chosen = [int(os.environ["RUN"])] if os.environ.get("RUN") else range(1, runs + 1)
    print(f"chaos: {len(chosen)} runs, SEED={seed}", flush=True)
    make_network()
    folder = tempfile.mkdtemp()
    said("mount", "-t", "tmpfs", "tmpfs", folder)
    os.environ["XDG_RUNTIME_DIR"] = folder
    said(binary(), "gen", "--out", f"pcap:{folder}/frames.pcap", "--stream", STREAM, "--count", 200_000, "-q")
    tally, bad = {}, []
    for number in chosen:
        name, line, status, found = one(number, seed, folder)
        count = tally.setdefault(name.split(", ")[1], [0, 0])
        count[0] += 1
        if found:
            count[1] += 1
            bad.append(number)
        if sys.stdout.isatty():
            print(f"\r\x1b[K{number} of {runs}: {name}: {len(bad)} with findings", end="", flush=True)
        elif number % 20 == 0:
            print(f"{number} of {runs}, {len(bad)} with findings", flush=True)
        if found or os.environ.get("RUN"):
            print(f"{chr(10) if sys.stdout.isatty() else ''}run {number}: {name}: {line}\n  status {status}", flush=True)
            for entry in found:
                print(f"  {entry}", flush=True)
    print("\n" * sys.stdout.isatty() + "fault              runs  with findings")
    for name, (count, wrong) in sorted(tally.items()):
        print(f"{name:18} {count:4}  {wrong:4}")
    print(f"chaos: {len(chosen)} runs, {len(bad)} with findings" + (f": repeat one with SEED={seed} RUN={bad[0]}" if bad else ""))
    return 1 if bad else 0


def on_own_mounts():
    """Runs chaos with its own records of labs and namespaces."""
    for folder in ("/run/netlathe", "/run/netns"):
        os.makedirs(folder, exist_ok=True)
        said("mount", "-t", "tmpfs", "tmpfs", folder)
    return chaos()


if __name__ == "__main__":
    run_alone("chaos", on_own_mounts)
