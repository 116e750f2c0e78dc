"""What slices cost and how exact they are: each part in turns with the same work without them.

python3 bench/slices.py loops [few] | probes | cost-one | cost-two | throughput | pipeline WITH WITHOUT

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


def agreement(size, rounds, corrected):
    """`corrected` gives a corrected round; beside it the program's own, taken before and after. Where those two differ
    by more than 5 % the machine itself changed: such a pair is left out, and counted."""
    pairs, restless, before = [], 0, own(size)
    for _ in range(rounds):
        round_ns, raw_ns = corrected()
        after = own(size)
        alone = (before + after) / 2
        if abs(after / before - 1) > 0.05:
            restless += 1
        else:
            pairs.append((round_ns / alone - 1, alone, raw_ns, round_ns))
        before = after
    if not pairs:
        return dict(size=size, pairs=0, restless=restless)
    off, alone, raw_ns, round_ns = (median(column) for column in zip(*pairs))
    offs = sorted(pair[0] for pair in pairs)
    return dict(size=size, pairs=len(pairs), restless=restless, own_ns=alone, raw_ns=raw_ns, corrected_ns=round_ns,
                off=off, off_least=offs[0], off_most=offs[-1])


def loops(points="all"):
    """The corrected round of kernel slices beside the program's own round trip."""
    rows = []
    for size in SIZES:
        def corrected():
            command = [PROGRAM, "tcp", size, 3000, 0, 0]
            found = report("slice", "kernel", "--json", "--points", points, "--", *command)
            assert found["packets"]["lost"] == 0, found
            return found["loop"]["p50_ns"], found["loop"]["raw_p50_ns"]
        rows.append(agreement(size, 5, corrected))
        print(rows[-1], flush=True)
    return rows


def probes():
    """The corrected round of a program with probes of its own, beside its round trip without them."""
    rows = []
    ring = "/dev/shm/netlathe-bench-%d" % os.getpid()
    try:
        for size in SIZES:
            def corrected():
                command = [NETLATHE, "slice", "attach", ring, "--buffer", "16MiB", "--json"]
                attached = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
                time.sleep(0.3)
                program("tcp", size, 3000, 0, 0, ring)
                time.sleep(0.05)
                attached.send_signal(signal.SIGINT)
                found = json.loads(attached.communicate()[0])
                assert found["dropped"] == 0, found
                os.unlink(ring)
                return found["loop"]["p50_ns"], found["loop"]["raw_p50_ns"]
            rows.append(agreement(size, 10, corrected))
            print(rows[-1], flush=True)
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
    # The least: where the machine changes its pace, medians are of that.
    base = min(got["nothing"])
    rows = [dict(tool=name, rtt_ns=min(values), more=min(values) / base - 1, all=values) for name, values in got.items()]
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
    for _ in range(6):
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
    parts = {"loops": lambda: loops(*arguments), "probes": probes, "cost-one": lambda: cost((0, 0)), "cost-two": lambda: cost((0, 1)),
             "throughput": throughput, "pipeline": lambda: pipeline(*arguments)}
    rows = parts[part]()
    whole = json.load(open(RESULTS)) if os.path.exists(RESULTS) else {}
    whole["-".join([part, *arguments]) if part == "loops" else part] = rows
    with open(RESULTS, "w") as file:
        json.dump(whole, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
