#!/usr/bin/env python3
"""What a Linux receiver takes and where it loses frames: repeats the experiments of a reference on veth in a lab.

The reference sent from one server to another with an X710: one flow, many flows, an IMIX capture; with a small and a large
ring. Here `netlathe gen` sends from the lab's client, the box routes, and `netlathe measure --host` watches the server. The
router is needed because Linux holds a local sender back until IP has taken its frames, which a wire would not do. A veth
has no descriptor ring. Its place is taken by a CPU's backlog, to which RPS hands frames from the sender's CPU, and by the
ring of 256 frames of a veth in NAPI mode. The counts of each run balance:

    sent  =  arrived + lost before the interface (backlog or ring, counted by the sender's veth)
    arrived  =  read + lost at the socket + dropped by IP or UDP + in flight at the end

Runs itself in a lab that is removed however it ends. Settings (RPS, GRO, backlog) are restored.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "scripts"))
from inlab import INSIDE, Failed, await_line, binary, run, start, stop, within

RESULTS = os.path.join(ROOT, "bench", "results", "receiver.json")
OUTSIDE = "NETLATHE_BENCH_OUTSIDE"  # holds the descriptor of the machine's network namespace
SECONDS = "2s"
ROUNDS = int(os.environ.get("ROUNDS", "3"))
HERE, NOWHERE, PORT = "10.77.0.100", "10.77.0.77", 9000
MAC = "02:77:00:00:00:64"
CPUS = os.cpu_count() or 1
QUEUES = min(CPUS, 4)
# Frames come in bursts of 2000 within some milliseconds, 40 000 a second in the mean.
BURSTS = "burst 400kpps for 5ms every 50ms"
BACKLOG = "/proc/sys/net/core/netdev_max_backlog"


ROUTER = CAPTURE = ""


def shell(node, line):
    return run(["sh", "-ec", line], node).decode()


def dropped_by_sender():
    with open("/sys/class/net/s0/statistics/tx_dropped") as file:
        return int(file.read())


def sink(buffer):
    """Reads datagrams one by one in its own process."""
    program = f"""
import signal, socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, {buffer})
s.bind(("", {PORT}))
signal.signal(signal.SIGINT, signal.default_int_handler)
print("bound", s.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF), flush=True)
n, room = 0, bytearray(2048)
try:
    while True:
        s.recv_into(room)
        n += 1
except KeyboardInterrupt:
    print(n, flush=True)
"""
    process = start([sys.executable, "-c", program], "server", stdout=subprocess.PIPE)
    await_line(process.stdout, "bound", "the reader")
    return process


def once(stream, rate, buffer):
    """Makes one run. Returns the frames by where they ended, and the advice of the monitor."""
    reader = sink(buffer) if buffer else None
    monitor = start([binary(), "measure", "--host", "eth0", "--json", "-v"], "server", stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE)
    await_line(monitor.stderr, "watching", "the monitor")
    before = dropped_by_sender()
    line = ["gen", "--out", "eth0", "--duration", SECONDS, "--json"]
    line += stream if isinstance(stream, list) else ["--stream", stream]
    line += ["--cores", "0"] if CPUS > 1 else []
    line += ["--rate", rate] if rate else []
    sent = json.loads(run([binary(), *line], "client", wait_s=60))["pipelines"][0]["out"]["frames"]
    time.sleep(0.5)  # until the last frames are read
    report = json.loads(stop(monitor)[0])["host"]
    read = int(stop(reader)[0].split()[-1]) if reader else 0
    lost = report["lost"]
    of = report["interfaces"][0]
    before_interface = dropped_by_sender() - before
    seconds = float(SECONDS.rstrip("s"))
    return {
        "sent": sent,
        "offered_pps": sent / seconds,
        "arrived": of["frames"],
        "lost_before_interface": before_interface,
        "lost_softnet": lost["softnet"],
        "lost_ring": lost["ring"],
        "protocol": lost["protocol"],
        "lost_socket": lost["socket"],
        "read": read,
        "unexplained": sent - of["frames"] - before_interface,
        "queues": [queue["frames"] for queue in of["queues"] or []],
        "busiest_cpu_share": max(c["processed"] for c in report["cpus"]) / max(1, sum(c["processed"] for c in report["cpus"])),
        "advice": [advice["name"] for advice in report["advice"]],
        "commands": [command for advice in report["advice"] for command in advice["commands"]],
    }


def stream(flows, size, to):
    ports = "1000" if flows == 1 else f"1000-{999 + flows}"
    return f"udp 10.77.0.1:{ports} > {to}:{PORT} size {size} dmac {{router}}"


def route():
    """Makes the box a router to the server. Returns the MAC address for frames to the router."""
    lines = ["ip link set c0 arp on; ip link set s0 arp on", "echo 1 > /proc/sys/net/ipv4/ip_forward"]
    lines += [f"echo 0 > /proc/sys/net/ipv4/conf/{name}/rp_filter" for name in ("all", "c0")]
    for address in (HERE, NOWHERE):
        lines += [f"ip route add {address} dev s0", f"ip neigh replace {address} lladdr {MAC} dev s0 nud permanent"]
    shell("box", "; ".join(lines))
    if QUEUES > 1:
        # The router chooses a queue by flow only for frames that arrived on its first queue.
        shell("client", "ethtool -L eth0 rx 1 tx 1")
    with open("/sys/class/net/c0/address") as file:
        return file.read().strip()


class Set:
    """A setting of the server's interface for the time of a `with` block."""

    def __init__(self, on, off):
        self.on, self.off = on, off

    def __enter__(self):
        shell("server", self.on)

    def __exit__(self, *_):
        shell("server", self.off)


RPS = "/sys/class/net/eth0/queues/rx-*/rps_cpus"


def spread(mask):
    """RPS, in place of RSS: veth processes all frames on the sender's CPU."""
    every = lambda value: f"for queue in {RPS}; do echo {value} > $queue; done"
    return Set(every(f"{mask:x}"), every(0))


def napi():
    """The queues of the veth: rings of 256 frames, each read by a thread."""
    on = "ethtool -K eth0 gro on; echo 1 > /sys/class/net/eth0/threaded"
    return Set(on, "echo 0 > /sys/class/net/eth0/threaded; ethtool -K eth0 gro off")


class Backlog:
    """The backlog of all CPUs, a setting of the whole machine. It is only raised, because other programs use it too."""

    def __init__(self, frames):
        self.frames = frames

    def __enter__(self):
        self.before = outside(f"cat {BACKLOG}").strip()
        outside(f"echo {max(self.frames, int(self.before))} > {BACKLOG}")

    def __exit__(self, *_):
        outside(f"echo {self.before} > {BACKLOG}")


def outside(line):
    """Runs a line in the network namespace that this was started in, where the machine's settings are."""
    namespace = int(os.environ[OUTSIDE])
    done = subprocess.run(["nsenter", f"--net=/proc/self/fd/{namespace}", "sh", "-ec", line], pass_fds=[namespace],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=10)
    if done.returncode:
        raise Failed(done.stderr.decode(errors="replace").strip())
    return done.stdout.decode()


def may_set_backlog():
    try:
        outside(f"test -w {BACKLOG} && cat {BACKLOG} > /dev/null")
        return True
    except (Failed, OSError):
        return False


def rules(count=2000):
    """Routing rules that the kernel compares each frame with, as a firewall does."""
    spec = "for i in range(%d): print(f'rule {{}} pref {1000 + i} from 192.0.{i // 250}.{i %% 250} lookup main')" % count
    lines = lambda verb: f"""{sys.executable} -c "{spec.replace('{{}}', verb)}" | ip -batch -"""
    return Set(lines("add"), lines("del"))


ALL, OTHER = (1 << CPUS) - 1, 2
SMALL, LARGE = 16 << 10, 8 << 20
EXPERIMENTS = [
    # name, stream, rate, socket buffer, settings
    ("one flow, kernel only", stream(1, "64B", NOWHERE), None, 0, []),
    ("one flow, queues with rings of 256", stream(1, "64B", NOWHERE), None, 0, [napi]),
    ("1000 flows, queues with rings of 256", stream(1000, "64B", NOWHERE), None, 0, [napi]),
    ("one flow, RPS over all CPUs", stream(1, "64B", NOWHERE), None, 0, [lambda: spread(ALL)]),
    ("1000 flows, RPS over all CPUs", stream(1000, "64B", NOWHERE), None, 0, [lambda: spread(ALL)]),
    ("IMIX, 1000 flows, RPS over all CPUs", stream(1000, "imix", NOWHERE), None, 0, [lambda: spread(ALL)]),
    ("IMIX capture, RPS over all CPUs",
     ["--pcap", "{capture}", "--loop", "1000000", "--rewrite", f"dst 48.0.0.0/8 > {NOWHERE}, dmac {{router}}"],
     "200kpps", 0, [lambda: spread(ALL)]),
    ("bursts, small ring (veth's 256)", stream(1, "64B", NOWHERE), BURSTS, 0, [napi]),
    ("bursts, slow kernel, backlog as it is", stream(1, "64B", NOWHERE), BURSTS, 0, [rules, lambda: spread(OTHER)]),
    ("bursts, slow kernel, backlog of 10 000", stream(1, "64B", NOWHERE), BURSTS, 0,
     [rules, lambda: spread(OTHER), lambda: Backlog(10_000)]),
    ("bursts, reader with 16 KiB", stream(1, "64B", HERE), BURSTS, SMALL, []),
    ("bursts, reader with 8 MiB", stream(1, "64B", HERE), BURSTS, LARGE, []),
    ("full rate, reader with 8 MiB", stream(1, "64B", HERE), None, LARGE, []),
]


def capture():
    """An IMIX capture of 1000 flows between other hosts, to be rewritten as the reference rewrote its own."""
    file = os.path.join(tempfile.gettempdir(), f"netlathe-bench-{os.getpid()}.pcap")
    line = [binary(), "gen", "--out", f"pcap:{file}", "-q", "--count", "10000", "--stream",
            "udp 16.0.0.1:1000-1999 > 48.0.0.1:9000 size imix"]
    run(line)
    return file


def experiment(name, spec, rate, buffer, settings):
    """Runs some rounds of an experiment. Returns the round with the median loss."""
    if isinstance(spec, list):
        spec = [word.format(router=ROUTER, capture=CAPTURE) for word in spec]
    else:
        spec = spec.format(router=ROUTER)
    opened = []
    try:
        for setting in settings:
            setting = setting()
            setting.__enter__()
            opened.append(setting)
        rounds = [once(spec, rate, buffer) for _ in range(ROUNDS)]
    finally:
        for setting in reversed(opened):
            setting.__exit__(None, None, None)
    share = lambda run: (run["sent"] - run["arrived"] + run["lost_socket"]) / max(1, run["sent"])
    middle = sorted(rounds, key=share)[len(rounds) // 2]
    shown = lambda key: f"{middle[key]:>11,}".replace(",", " ")
    print(f"{name:38} {middle['offered_pps'] / 1e3:>8,.0f} {shown('arrived')} {shown('lost_before_interface')} "
          f"{shown('lost_socket')} {share(middle):>9.2%} {middle['busiest_cpu_share']:>5.0%}  {', '.join(middle['advice'])}",
          flush=True)
    return {"name": name, "stream": spec, "rate": rate or "as fast as the port takes", "socket_buffer": buffer,
            "lost_share": share(middle), "offered_pps_median": statistics.median(r["offered_pps"] for r in rounds),
            "middle": middle, "rounds": rounds}


def inside():
    global ROUTER, CAPTURE
    ROUTER, CAPTURE = route(), capture()
    print(f"{CPUS} CPUs, veth of {QUEUES} queues, load {os.getloadavg()[0]:.1f}; medians of {ROUNDS} rounds of {SECONDS}\n")
    print(f"{'experiment':38} {'kpps':>8} {'arrived':>11} {'lost before':>11} {'lost at':>11} {'lost':>9} {'most':>5}  advice")
    print(f"{'':38} {'offered':>8} {'frames':>11} {'interface':>11} {'socket':>11} {'of sent':>9} {'CPU':>5}")
    results, skipped = [], {}
    for name, spec, rate, buffer, settings in EXPERIMENTS:
        if CPUS < 2 and ("RPS" in name or "backlog" in name):
            skipped[name] = "there is one CPU"
        elif "10 000" in name and not may_set_backlog():
            skipped[name] = "netdev_max_backlog is a setting of the whole machine; this user may not change it"
        if name in skipped:
            print(f"{name:38} SKIP: {skipped[name]}")
            continue
        try:
            results.append(experiment(name, spec, rate, buffer, settings))
        except Failed as failure:
            skipped[name] = str(failure)
            print(f"{name:38} SKIP: {failure}")
    off = [r["name"] for r in results for run in r["rounds"] if abs(run["unexplained"]) > 0.001 * run["sent"] + 50]
    print(f"\nbooks: {'closed in every run' if not off else 'open in ' + ', '.join(off)}: sent = arrived + lost before the interface")
    os.makedirs(os.path.dirname(RESULTS), exist_ok=True)
    with open(RESULTS, "w") as file:
        json.dump({"schema": 1, "bench": "receiver", "kernel": os.uname().release, "cpus": CPUS, "queues": QUEUES,
                   "experiments": results, "skipped": skipped}, file, indent=1)
        file.write("\n")
    print(f"results: {os.path.relpath(RESULTS, ROOT)}")


def main():
    if INSIDE not in os.environ:
        namespace = os.open("/proc/self/ns/net", os.O_RDONLY)
        os.set_inheritable(namespace, True)
        os.environ[OUTSIDE] = str(namespace)
    try:
        return within("bench-receiver", inside, "--queues", str(QUEUES))
    finally:
        if CAPTURE:
            os.unlink(CAPTURE)


if __name__ == "__main__":
    sys.exit(main())
