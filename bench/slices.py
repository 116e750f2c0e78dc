"""What slices cost and how exact they are: each part in turns with the same work without them.

python3 bench/slices.py loops LOOPS | probes LOOPS | table [veth] | cost-one | cost-two | throughput | pipeline [WITH WITHOUT]… | whole

Each part ends within two minutes, and writes its figures into bench/results/slices.json. `loops`: the corrected round of
`slice kernel` beside the program's own; `probes`: the same of a program with probes of its own (LOOPS is the bench of
crates/slice, built); `table`: medians of each slice, by size of message; `cost-…`: the round trip
of a program while slices or tcpdump run, both ends on one CPU and on two; `throughput`: datagrams at 100 kpps; `pipeline`:
ns a frame of the engine, by its bench built with and without the feature `slices`, which it builds if none is named;
`whole`: CPU time of a whole run of `emulate` from file to file, with and without frames followed.
Needs root, cc, and for their lines tcpdump and perf.
"""

import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
RESULTS = os.path.join(HERE, "results", "slices.json")
NETLATHE = os.environ.get("NETLATHE", os.path.join(HERE, "..", "target", "release", "netlathe"))
PROGRAM = os.path.join(HERE, "..", "target", "ping_pong")
SIZES = [4, 128, 512, 1448]
# Time for a tool to calibrate itself and start tracing.
READY = 3.2
# For a program whose speed is compared with another's.
COPIES = 8
# Round trips beside a tool, on one CPU and on two. They take more than a second, so that tools that work periodically do.
ROUNDS = {1: 100_000, 2: 30_000}


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


def agreement(bench, what, runs):
    """The corrected round beside the program's own, by the bench of crates/slice: turns of some milliseconds with and
    without slices. Each run calibrates anew; of `runs`, the median for each size and policy of the scheduler."""
    rows = {}
    for _ in range(runs):
        command = [bench, what, PROGRAM, "1.7" if runs > 1 else "6", *map(str, SIZES)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        for row in map(json.loads, done.stdout.splitlines()):
            rows.setdefault((row.pop("size"), row.pop("policy")), []).append(row)
    found = []
    for (size, policy), each in rows.items():
        row = {name: median(run[name] for run in each) for name in each[0]}
        row["size"], row["policy"], row["runs"] = size, policy, [run["off"] for run in each]
        found.append(row)
        print(row, flush=True)
    return found


def table(via=None):
    """Medians of each slice over loopback, or over veth with both ends in namespaces of their own; of five runs."""
    rows = []
    try:
        if via:
            for words in ["netns add nl-a", "netns add nl-b", "link add nl-a type veth peer name nl-b",
                          "link set nl-a netns nl-a", "link set nl-b netns nl-b"]:
                subprocess.run(["ip", *words.split()], check=True)
            for end, address in [("nl-a", "10.99.0.1/24"), ("nl-b", "10.99.0.2/24")]:
                subprocess.run(["ip", "-n", end, "address", "add", address, "dev", end], check=True)
                subprocess.run(["ip", "-n", end, "link", "set", end, "up"], check=True)
            time.sleep(1)
        enter = ["ip", "netns", "exec", "nl-a", "env", "SERVER=nl-b,10.99.0.2"] if via else []
        for size in SIZES:
            runs, own = [], []
            for _ in range(5 if not via else 4):
                command = [*enter, PROGRAM, "tcp", size, 1000, 0, 0]
                own.append(int(subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True).stdout.split()[0]))
                runs.append(report("slice", "kernel", "--json", "--", *command))
            names = [slice["name"] for slice in runs[0]["slices"] if slice["top"]]
            of = lambda run, name: next((s["p50_ns"] for s in run["slices"] if s["name"] == name), None)
            row = dict(size=size, lost=sum(run["packets"]["lost"] for run in runs), own_ns=min(own))  # as in `cost`
            row.update({name: median([of(run, name) for run in runs if of(run, name) is not None]) for name in names})
            row.update(total=median(run["total"]["p50_ns"] for run in runs), own=own,
                       loop_raw=median(run["loop"]["raw_p50_ns"] for run in runs), loop=median(run["loop"]["p50_ns"] for run in runs))
            rows.append(row)
            print(row, flush=True)
    finally:
        if via:
            for end in ["nl-a", "nl-b"]:
                subprocess.run(["ip", "netns", "delete", end], stderr=subprocess.DEVNULL)
    return rows


def beside(tool, measure):
    """Returns the result of `measure` while a tool runs."""
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
    """The tools that run beside the program."""
    kernel = [NETLATHE, "slice", "kernel", "-q"]
    found = {
        "nothing": None,
        "all points, nothing to follow": kernel + ["--port", "9"],
        "all points": kernel,
        "few points, nothing to follow": kernel + ["--points", "few", "--port", "9"],
        "few points": kernel + ["--points", "few"],
        "all points, 20 ms in each second": kernel + ["--windows", "20ms/1s"],
    }
    if shutil.which("perf"):
        # The tracepoints that slices use, if a script can attach to them.
        events = ["raw_syscalls:sys_enter", "raw_syscalls:sys_exit", "net:net_dev_queue", "net:net_dev_start_xmit",
                  "net:net_dev_xmit", "net:netif_rx", "net:netif_receive_skb", "tcp:tcp_probe", "sock:sk_data_ready",
                  "skb:skb_copy_datagram_iovec", "tcp:tcp_rcv_space_adjust", "sock:sock_recv_length"]
        found["perf record"] = ["perf", "record", "-a", "-e", ",".join(events), "-o", "/dev/null"]
    if shutil.which("tcpdump"):
        found["tcpdump"] = ["tcpdump", "-i", "lo", "-s", "96", "-w", "/dev/null"]
    return found


def cost(cpus, rounds=3):
    """The round trip of 4 B while each tool runs, in turns: medians and means."""
    got = {name: [] for name in tools()}
    for _ in range(rounds):
        for name, tool in tools().items():
            got[name].append(beside(tool, lambda: program("tcp", 4, ROUNDS[len(set(cpus))], *cpus)))
    # The minimum of the rounds, because the machine's speed may change between them.
    least = {name: [min(values) for values in zip(*runs)] for name, runs in got.items()}
    base = least["nothing"]
    rows = [dict(tool=name, rtt_ns=median, more=median / base[0] - 1, mean_ns=mean, more_mean=mean / base[1] - 1,
                 all=got[name]) for name, (median, mean) in least.items()]
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


def builds():
    """The engine's bench with and without the feature `slices`, each with its functions in four random orders."""
    for order in range(1, 5):
        for features in [[], ["--no-default-features"]]:
            command = ["cargo", "rustc", "-p", "netlathe-engine", *features, "--profile", "bench", "--bench", "slices",
                       "--message-format", "json", "--", "-C", "link-arg=-Wl,--shuffle-sections=.text*=%d" % order]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
            built = next(filter(None, (json.loads(line).get("executable") for line in done.splitlines())))
            yield shutil.copy(built, os.path.join(HERE, "..", "target", "slices-%d%s" % (order, "-without" * bool(features))))


def pipeline(*built):
    """ns a frame through the engine, by pairs of programs WITH WITHOUT; a pair differs from the next by where its code
    lies, which is worth 1 to 2 % by itself. Following against not following, by turns in one process; and the code for
    it, with no frame traced, against the engine without that code: two programs, so short runs in turns. A program takes up to a tenth more or less by the pages in which the kernel
    keeps its file, so runs are of COPIES copies of each in turn. Medians over the pairs, with what each gave; `control`
    compares in the same way what is the same."""
    built = list(built or builds())
    run = lambda program: float(subprocess.run([program, "alone", "off"], check=True, capture_output=True, text=True).stdout)
    pairs = list(zip(built[::2], built[1::2]))
    rows = {}

    def add(name, against, ns, more, control=False):
        row = rows.setdefault((name, against), dict(slices=name, against=against, control=control, ns_a_frame=[], each=[]))
        row["ns_a_frame"].append(ns)
        row["each"].append(round(more, 5))

    for built_with, built_without in pairs:
        turns = subprocess.run([built_with, "turns", str(24 // len(pairs))], check=True, capture_output=True, text=True).stdout
        for row in map(json.loads, turns.splitlines()):
            add(row["slices"], "off", row["ns_a_frame"], row["more"], row["slices"] == "off")
        without, again, off = [], [], []
        with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
            copies = lambda program, name: [shutil.copy(program, os.path.join(folder, "%s-%d" % (name, copy)))
                                            for copy in range(COPIES)]
            kept = [copies(built_without, "without"), copies(built_without, "again"), copies(built_with, "with")]
            ends = time.monotonic() + 60 / len(pairs)
            while time.monotonic() < ends:
                for one in zip(*kept):
                    for times, program in zip((without, again, off), one):
                        times.append(run(program))
        # The median of the runs of each copy, then the median of the copies of each program.
        ns = lambda times: median(median(times[copy::COPIES]) for copy in range(COPIES))
        add("not compiled", "not compiled", ns(again), ns(again) / ns(without) - 1, True)
        add("off", "not compiled", ns(off), ns(off) / ns(without) - 1)
    rows = [dict(row, ns_a_frame=median(row["ns_a_frame"]), more=median(row["each"])) for row in rows.values()]
    for row in rows:
        print(row)
    return rows


def whole(turns=200):
    """CPU time of `emulate`, half a million frames through a delay that holds 200, each way in its turn; shares are of the
    run without tracing in the same turn."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        capture = "pcap:" + os.path.join(folder, "in.pcap")
        stream = "udp 10.0.0.1:1 > 10.0.0.2:2 size 64B"
        generate = ["gen", "--out", capture, "--count", "500000", "--gap", "1us", "-q", "--stream", stream]
        subprocess.run([NETLATHE, *generate], check=True)
        emulate = ["emulate", "--in", capture, "--out", "pcap:/dev/null", "--forward", "delay 200us", "-q"]
        ways = {"off": [], "off again": [], "1/1000000": ["--slices", "1/1000000"], "1/64": ["--slices", "1/64"]}

        def milliseconds(way):
            run = subprocess.Popen([NETLATHE, *emulate, *ways[way]])
            _, status, used = os.wait4(run.pid, 0)
            run.returncode = os.waitstatus_to_exitcode(status)
            if run.returncode:
                raise SystemExit("emulate gave status %d" % run.returncode)
            return (used.ru_utime + used.ru_stime) * 1e3

        got = [{way: milliseconds(way) for way in ways} for _ in range(turns + 1)][1:]
    rows = [dict(slices=way, cpu_ms=median(turn[way] for turn in got),
                 more=median(turn[way] / turn["off"] - 1 for turn in got),
                 least=min(turn[way] for turn in got) / min(turn["off"] for turn in got) - 1) for way in ways]
    for row in rows:
        print(row)
    return rows


def main():
    part, arguments = sys.argv[1], sys.argv[2:]
    if part not in ("pipeline", "whole"):
        os.makedirs(os.path.dirname(PROGRAM), exist_ok=True)
        subprocess.run(["cc", "-O2", "-o", PROGRAM, os.path.join(HERE, "ping_pong.c")], check=True)
    parts = {"loops": lambda: agreement(arguments[0], "kernel", 3), "probes": lambda: agreement(arguments[0], "probes", 1),
             "table": lambda: table(*arguments), "cost-one": lambda: cost((0, 0)), "cost-two": lambda: cost((0, 1)),
             "throughput": throughput, "pipeline": lambda: pipeline(*arguments), "whole": whole}
    rows = parts[part]()
    results = json.load(open(RESULTS)) if os.path.exists(RESULTS) else {}
    results["-".join([part, *arguments]) if part == "table" else part] = rows
    with open(RESULTS, "w") as file:
        json.dump(results, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
