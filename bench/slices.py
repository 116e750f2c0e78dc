"""What slices cost and how exact they are: each part in turns with the same work without them.

python3 bench/slices.py loops | probes | cost-one | cost-two | throughput | pipeline WITH WITHOUT

Each part ends within a minute, and writes its figures into bench/results/slices.json. `loops`: the corrected round of
`slice kernel` beside the program's own; `probes`: the same of a program with probes of its own; `cost-…`: the round trip
of a program while slices or tcpdump run, both ends on one CPU and on two; `throughput`: datagrams at 100 kpps; `pipeline`:
ns a frame of the engine, by its bench built with and without the feature `slices`. Needs root, cc, and for their lines
tcpdump and perf.
"""

import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
RESULTS = os.path.join(HERE, "results", "slices.json")
NETLATHE = os.environ.get("NETLATHE", os.path.join(HERE, "..", "target", "release", "netlathe"))
PROGRAM = os.path.join(HERE, "..", "target", "ping_pong")
SIZES = [4, 128, 512, 1448]
# Until a tool that was started has calibrated itself and follows.
READY = 2.4


def program(*words):
    """Two figures that the program prints."""
    done = subprocess.run([PROGRAM, *map(str, words)], check=True, capture_output=True, text=True)
    return [int(word) for word in done.stdout.split()]


def own(size, cpus=(0, 0), rounds=3000):
    """The median round trip of the program, nothing else running."""
    return program("tcp", size, rounds, *cpus)[0]


def report(*words):
    """The report of a netlathe command."""
    done = subprocess.run([NETLATHE, *map(str, words)], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def median(values):
    return statistics.median(values)


def loops():
    """The corrected round of kernel slices beside the program's own round trip."""
    rows = []
    for points in ["all", "few"]:
        for size in SIZES:
            alone, corrected, raw, lost = [], [], [], 0
            for _ in range(2):
                alone.append(own(size))
                command = [PROGRAM, "tcp", size, 3000, 0, 0]
                found = report("slice", "kernel", "--json", "--points", points, "--", *command)
                corrected.append(found["loop"]["p50_ns"])
                raw.append(found["loop"]["raw_p50_ns"])
                lost += found["packets"]["lost"]
                alone.append(own(size))
            off = median(corrected) / median(alone) - 1
            rows.append(dict(points=points, size=size, own_ns=median(alone), raw_ns=median(raw),
                             corrected_ns=median(corrected), off=off, lost=lost))
            print(rows[-1])
    return rows


def probes():
    """The corrected round of a program with probes of its own, beside its round trip without them."""
    rows = []
    ring = "/dev/shm/netlathe-bench-%d" % os.getpid()
    try:
        for size in SIZES:
            alone, corrected, raw = [], [], []
            for _ in range(3):
                alone.append(own(size))
                command = [NETLATHE, "slice", "attach", ring, "--buffer", "16MiB", "--json"]
                attached = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
                time.sleep(0.4)
                program("tcp", size, 3000, 0, 0, ring)
                time.sleep(0.1)
                attached.send_signal(signal.SIGINT)
                found = json.loads(attached.communicate()[0])
                corrected.append(found["loop"]["p50_ns"])
                raw.append(found["loop"]["raw_p50_ns"])
                assert found["dropped"] == 0, found
                alone.append(own(size))
                os.unlink(ring)
            off = median(corrected) / median(alone) - 1
            pair = found["overhead"]["beta"]
            rows.append(dict(size=size, own_ns=median(alone), raw_ns=median(raw),
                             corrected_ns=median(corrected), off=off, pair_ns=pair))
            print(rows[-1])
    finally:
        if os.path.exists(ring):
            os.unlink(ring)
    return rows


def beside(tool, measure):
    """What `measure` gives while a tool runs."""
    if tool is None:
        return measure()
    running = subprocess.Popen(tool, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(READY)
        if running.poll() is not None:
            raise RuntimeError("%s ended at once" % tool)
        return measure()
    finally:
        running.send_signal(signal.SIGINT)
        running.wait()


def tools():
    """What runs beside the program."""
    kernel = [NETLATHE, "slice", "kernel", "-q"]
    found = {
        "nothing": None,
        "all points, nothing to follow": kernel + ["--port", "9"],
        "all points": kernel,
        "few points, nothing to follow": kernel + ["--points", "few", "--port", "9"],
        "few points": kernel + ["--points", "few"],
    }
    if shutil.which("perf"):
        # The tracepoints that slices use, as far as a script can have them.
        events = ["raw_syscalls:sys_enter", "raw_syscalls:sys_exit", "net:net_dev_queue", "net:net_dev_start_xmit",
                  "net:net_dev_xmit", "net:netif_rx", "net:netif_receive_skb", "tcp:tcp_probe", "sock:sk_data_ready",
                  "skb:skb_copy_datagram_iovec", "tcp:tcp_rcv_space_adjust", "sock:sock_recv_length"]
        found["perf record"] = ["perf", "record", "-a", "-e", ",".join(events), "-o", "/dev/null"]
    if shutil.which("tcpdump"):
        found["tcpdump"] = ["tcpdump", "-i", "lo", "-s", "96", "-w", "/dev/null"]
    return found


def cost(cpus, rounds=3):
    """The round trip of 4 B while each tool runs, in turns."""
    got = {name: [] for name in tools()}
    for _ in range(rounds):
        for name, tool in tools().items():
            got[name].append(beside(tool, lambda: own(4, cpus, 4000)))
    base = median(got["nothing"])
    rows = [dict(tool=name, rtt_ns=median(values), more=median(values) / base - 1) for name, values in got.items()]
    for row in rows:
        print(row)
    return rows


def throughput():
    """Datagrams of 64 B at 100 kpps over loopback, while each tool runs."""
    rows = []
    for name, tool in tools().items():
        values = [beside(tool, lambda: program("udp", 64, 100000, 1000)) for _ in range(2)]
        best = max(values)
        rows.append(dict(tool=name, sent_pps=best[0], received_pps=best[1]))
        print(rows[-1])
    return rows


def pipeline(built_with, built_without):
    """ns a frame through the engine, in turns."""
    runs = {"not compiled": [built_without, "off"], "off": [built_with, "off"],
            "1/64": [built_with, "64"], "1/1": [built_with, "1"]}
    got = {name: [] for name in runs}
    for _ in range(9):
        for name, command in runs.items():
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            got[name].append(float(done.stdout))
    base = median(got["not compiled"])
    rows = [dict(slices=name, ns_a_frame=median(values), more=median(values) / base - 1)
            for name, values in got.items()]
    for row in rows:
        print(row)
    return rows


def main():
    part, arguments = sys.argv[1], sys.argv[2:]
    if part != "pipeline":
        os.makedirs(os.path.dirname(PROGRAM), exist_ok=True)
        subprocess.run(["cc", "-O2", "-o", PROGRAM, os.path.join(HERE, "ping_pong.c")], check=True)
    parts = {"loops": loops, "probes": probes, "cost-one": lambda: cost((0, 0)), "cost-two": lambda: cost((0, 1)),
             "throughput": throughput, "pipeline": lambda: pipeline(*arguments)}
    rows = parts[part]()
    whole = json.load(open(RESULTS)) if os.path.exists(RESULTS) else {}
    whole[part] = rows
    with open(RESULTS, "w") as file:
        json.dump(whole, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
