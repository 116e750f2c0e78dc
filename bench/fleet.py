#!/usr/bin/env python3
"""Fleets on this machine: hosts are network namespaces with a Dask worker each. A common receiver measures what they send.

    bench/fleet.py skew [ROUNDS]     six hosts whose clocks disagree start together; the receiver states the skew
    bench/fleet.py crests [ROUNDS]   Fig. 7: three hosts send bursts at once, a shaper puts them in order; then one is late
    bench/fleet.py kills [TIMES]     an agent, its host's link, the scheduler or the controller is lost at a random moment, or Ctrl-C
    bench/fleet.py agents [N]        N agents that only keep time, on the real scheduler
    bench/fleet.py matrix [SITES]    a lab of sites: time to set it up, and each pair's round trip against the asked one

Prints JSON lines. Needs root, `pip install distributed`, and NETLATHE with the program. SEED sets the random numbers of kills.
Each host has an interface for the experiment and one for control, as a rack has.
"""

import json
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "python" / "src"))
PROGRAM = os.environ.setdefault("NETLATHE", str(ROOT / "target" / "release" / "netlathe"))
MARK = f"nf{os.getpid() % 10000}"


def ip(*words):
    subprocess.run(["ip", *words], check=True, stdout=subprocess.DEVNULL)


def say(**figures):
    print(json.dumps(figures), flush=True)


def processes(name):
    """Processes of a namespace, with their command lines."""
    pids = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True).stdout.split()
    found = {}
    for pid in pids:
        try:
            found[int(pid)] = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


class Rack:
    """Namespaces on two switches: `ctl0` for control, `eth0` for the experiment. `box` has `c0` on the switch of the experiment
    and `s0` to the `server`, if there is a shaper."""

    def __init__(self, hosts, shaper=False):
        self.hosts = hosts
        self.data = [host for host in hosts if not shaper or host not in ("box", "server")]
        self.started = []
        self.made = []
        self.macs = {name: f"02:77:00:00:00:{number:02x}" for number, name in enumerate(self.data, 1)}
        for name in ["switch", "head", *hosts]:
            ip("netns", "add", self.ns(name))
            self.made.append(name)
            ip("-n", self.ns(name), "link", "set", "lo", "up")
            self.quiet(name)
        for bridge in ("ctl", "data"):
            ip("-n", self.ns("switch"), "link", "add", bridge, "type", "bridge", "mcast_snooping", "0")
            ip("-n", self.ns("switch"), "link", "set", bridge, "up")
        for number, name in enumerate(["head", *hosts], 1):
            self.wire(name, "ctl0", "ctl", number)
            ip("-n", self.ns(name), "addr", "add", f"10.99.0.{number}/24", "dev", "ctl0")
        for number, name in enumerate(self.data, 1):
            self.wire(name, "eth0", "data", number, self.macs[name])
            # The switch knows the port of each host from the start, so it floods no frames to other hosts.
            words = ["fdb", "add", self.macs[name], "dev", f"data{number}", "master", "static"]
            subprocess.run(["bridge", "-n", self.ns("switch"), *words], check=True)
        if shaper:
            self.wire("box", "c0", "data", 90)
            ip("-n", self.ns("box"), "link", "set", "c0", "promisc", "on")
            ip("-n", self.ns("box"), "link", "add", "s0", "type", "veth", "peer", "name", "eth0", "netns", self.ns("server"))
            for name, link in (("box", "s0"), ("server", "eth0")):
                ip("-n", self.ns(name), "link", "set", link, "up")
            self.offloads("box", "s0")
            self.offloads("server", "eth0")
        self.scheduler = "tcp://10.99.0.1:8786"
        self.start("head", "-m", "distributed.cli.dask_scheduler", "--host", "10.99.0.1", "--no-dashboard")
        for name in hosts:
            words = ["-m", "distributed.cli.dask_worker", self.scheduler, "--nthreads", "4", "--no-nanny", "--no-dashboard"]
            self.start(name, *words, "--death-timeout", "30", "--name", name)

    def ns(self, name):
        return f"{MARK}-{name}"

    def quiet(self, name):
        for kind in ("all", "default"):
            path = f"net.ipv6.conf.{kind}.disable_ipv6=1"
            subprocess.run(["ip", "netns", "exec", self.ns(name), "sysctl", "-qw", path], check=False)

    def offloads(self, name, link):
        words = ["ethtool", "-K", link, "tx", "off", "tso", "off", "gso", "off", "gro", "off"]
        subprocess.run(["ip", "netns", "exec", self.ns(name), *words], check=False, capture_output=True)

    def wire(self, name, link, bridge, number, mac=None):
        ip("-n", self.ns(name), "link", "add", link, "type", "veth", "peer", "name", f"{bridge}{number}", "netns", self.ns("switch"))
        if mac:
            ip("-n", self.ns(name), "link", "set", link, "address", mac)
        ip("-n", self.ns("switch"), "link", "set", f"{bridge}{number}", "master", bridge)
        ip("-n", self.ns("switch"), "link", "set", f"{bridge}{number}", "up")
        ip("-n", self.ns(name), "link", "set", link, "up")
        if bridge == "data":
            self.offloads(name, link)

    def start(self, name, *words, **options):
        options = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, **options}
        env = {**os.environ, "PYTHONPATH": str(ROOT / "python" / "src")}
        process = subprocess.Popen(["ip", "netns", "exec", self.ns(name), sys.executable, *words], env=env, **options)
        self.started.append(process)
        return process

    def drive(self, **about):
        """Starts a controller in its own process. It reads what to do from a file of this name."""
        about = {"scheduler": self.scheduler, "workers": len(self.hosts), **about}
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return self.start("head", __file__, "_control", json.dumps(about), **options)

    def close(self):
        for process in self.started:
            process.terminate()
        for process in self.started:
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        left = {name: list(processes(self.ns(name)).values()) for name in self.made}
        for name in reversed(self.made):
            for pid in processes(self.ns(name)):
                os.kill(pid, signal.SIGKILL)
            ip("netns", "del", self.ns(name))
        return {name: lines for name, lines in left.items() if lines}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def control(about):
    """Runs the fleet that `about` describes, and prints its result."""
    from netlathe import fleet

    def role(words):
        return fleet.Role(**words)

    phases = [fleet.Phase("run", [role(words) for words in about["roles"]], about["duration_s"])]
    offsets = {name: {"NETLATHE_CLOCK_OFFSET": f"{us}us"} for name, us in about.get("offsets_us", {}).items()}
    options = {"clock_environment": offsets, "start_in_s": 1.5, "max_clock_error_s": 500e-6, **about.get("options", {})}
    engine = fleet.Dask(about["scheduler"], timeout_s=60)
    engine.client.wait_for_workers(about["workers"], timeout=60)

    def progress(phase, states):
        print("states", json.dumps(states), flush=True)

    def shown(result):
        return {
            "missing": {host.host: host.missing for host in result.missing},
            "clocks": {host.host: host.clock for host in result.hosts},
            "reports": {host.host: host.report for host in result.hosts},
            "merged": {role: merged for (_, role), merged in result.merged.items()},
            "received": result.received,
            "took_s": result.took_s,
        }

    scenario = fleet.Scenario(phases, **options)
    print("begun", flush=True)
    print("result", json.dumps(shown(fleet.run(scenario, engine, progress=progress, folder=about.get("folder")))), flush=True)


def result_of(process, patience_s=120):
    out, err = process.communicate(timeout=patience_s)
    lines = [line for line in out.splitlines() if line.startswith("result ")]
    if not lines:
        raise SystemExit(f"no result: {out[-2000:]}\n{err[-4000:]}")
    return json.loads(lines[-1].removeprefix("result "))


def gen(number="{index}", mac="ff:ff:ff:ff:ff:ff", rate="1kpps", count="500"):
    stream = f"udp 10.0.0.{number}:1000 > 10.0.9.9:9 smac 02:77:00:00:00:0{number} dmac {mac} size 500B"
    return ["gen", "--out", "if:eth0,driver=af_packet", "--rate", rate, "--count", count, "--stream", stream]


def looked_at(path, order, silence_ns):
    """Computes from a capture, without netlathe: the spread of the sources' first frames, and the crests in order of
    their start, each (source, first, last) in ns."""
    import netlathe

    first, last, open_, found = {}, {}, {}, []
    for frame in netlathe.read_frames(path):
        if frame.data[12:14] != b"\x08\x00" or frame.data[36:38] != b"\x00\x09":
            continue
        source, at = ".".join(map(str, frame.data[26:30])), frame.time_ns
        first.setdefault(source, at)
        if source not in last or at - last[source] >= silence_ns:
            open_[source] = [source, at, at, 0]
            found.append(open_[source])
        last[source] = open_[source][2] = at
        open_[source][3] += 1
    spread_us = (max(first.values()) - min(first.values())) / 1e3 if len(first) > 1 else None
    gaps = [(b[1] - a[2]) / 1e6 for a, b in zip(found, found[1:]) if a[0] != b[0]]
    turns = [order.index(crest[0]) for crest in found if crest[0] in order]
    wrong = sum(b != (a + 1) % len(order) for a, b in zip([len(order) - 1, *turns], turns))
    return {"spread_us": spread_us, "sources": len(first), "crests": len(found), "frames": sum(crest[3] for crest in found),
            "overlapping": sum(gap < 0 for gap in gaps), "out_of_turn": wrong,
            "turns": "".join(str(turn + 1) for turn in turns), "gap_ms": [round(f(gaps), 3) for f in (min, statistics.median, max)] if gaps else None}


HOSTS = [f"h{i}" for i in range(1, 7)]
def compares(sources):
    """Returns the option that makes the receiver compare sources, if the program has it."""
    text = subprocess.run([PROGRAM, "measure", "--help"], capture_output=True, text=True).stdout
    return ["--sources", sources] if "--sources" in text else []


SOURCES = ",".join(f"10.0.0.{i}" for i in range(1, 7))
RECEIVER = {
    "name": "receiver", "hosts": ["receiver"], "follows": True, "start_after_s": -0.3,
    "command": ["measure", "--in", "eth0", "--only", "udp dport 9", *compares(SOURCES)],
}


def skew(rounds):
    offsets = {"h1": 137, "h2": -2_600, "h3": 31_000, "h4": -77_777, "h5": 950, "h6": 0}
    spreads, clocks, misses = [], [], []
    with Rack([*HOSTS, "receiver"]) as rack, tempfile.TemporaryDirectory() as folder:
        for number in range(rounds):
            capture = f"{folder}/{number}.pcap"
            receiver = {**RECEIVER, "command": [*RECEIVER["command"], "--write", capture]}
            roles = [{"name": "sender", "hosts": HOSTS, "command": gen(mac=rack.macs["receiver"])}, receiver]
            result = result_of(rack.drive(roles=roles, duration_s=6, offsets_us=offsets))
            off = [abs(result["clocks"][name]["offset_ns"] / 1e3 + us) for name, us in offsets.items()]
            own = looked_at(capture, SOURCES.split(","), 1e6)
            seen = result["received"][0] if result["received"] else {}
            spreads.append(own["spread_us"])
            clocks += off
            misses.append(result["merged"]["sender"]["merged"]["start_spread_ns"] / 1e3)
            say(round=number, missing=result["missing"], clock_off_us=[round(us, 1) for us in off], receiver_spread_us=spreads[-1], reported_us=seen.get("spread_ns", 0) / 1e3,
                clocks_spread_us=misses[-1], frames=result["merged"]["sender"]["pipelines"][0]["out"]["frames"],
                received=own["frames"])
    say(skew=True, rounds=rounds, receiver_spread_median_us=statistics.median(spreads), worst_us=max(spreads),
        clock_off_median_us=statistics.median(clocks), clock_off_worst_us=max(clocks))


def crests(rounds):
    names = ["h1", "h2", "h3"]
    order = "10.0.0.1,10.0.0.2,10.0.0.3"
    for late_s in (0.0, 0.59):
        with Rack([*names, "box", "server"], shaper=True) as rack, tempfile.TemporaryDirectory() as folder:
            wait = "300ms"
            for number in range(rounds):
                sender = gen(rate="burst 4kpps for 40ms every 600ms", count="960")
                roles = [
                    {"name": "client", "hosts": names[:2], "command": sender},
                    {"name": "third", "hosts": names[2:], "command": gen(number=3, rate="burst 4kpps for 40ms every 600ms", count="960"), "start_after_s": late_s},
                    {"name": "shaper", "hosts": ["box"], "follows": True, "start_after_s": -0.4, "command": [
                        "shape", "--in", "if:c0,driver=af_packet", "--out", "if:s0,driver=af_packet", "--one-way",
                        "--sync", f"order {order} gap 10ms wait {wait} silence 60ms"]},
                    {"name": "receiver", "hosts": ["server"], "follows": True, "start_after_s": -0.4, "command": [
                        "measure", "--in", "eth0", "--only", "udp dport 9", *compares(f"{order} gap 10ms silence 60ms"), "--report", f"{folder}/page",
                        "--write", f"{folder}/got.pcap"]},
                ]
                result = result_of(rack.drive(roles=roles, duration_s=9))
                if result["missing"]:
                    say(missing=result["missing"])
                    continue
                seen = result["received"][0] if result["received"] else {}
                by_hand = looked_at(f"{folder}/got.pcap", order.split(","), 60e6)
                shaped = result["reports"]["box"]["pipelines"][0]
                own = {source["source"]: source for source in (shaped.get("sources") or shaped["classes"][0]["sources"])}
                say(crests=True, late_s=late_s, round=number, missing=result["missing"], by_hand=by_hand, reported={key: seen.get(key) for key in ("crests", "overlapping", "out_of_turn", "crest_gap")}, crest_gap_at_shaper=shaped.get("crest_gap"),
                    overlap_in_ms={name: source["overlap"]["in_ns"] / 1e6 for name, source in own.items()},
                    overlap_out_ms={name: source["overlap"]["out_ns"] / 1e6 for name, source in own.items()},
                    missed={name: source["missed"] for name, source in own.items()})
            pages = list(pathlib.Path(folder).rglob("report.html"))
            say(pages=[page.stat().st_size for page in pages], lanes=["Sources as received" in page.read_text() for page in pages])
            for page in pages:
                keep = pathlib.Path(os.environ.get("KEEP", folder)) / f"fig7-late-{late_s}.html"
                keep.write_text(page.read_text())


def left_behind(rack):
    """Returns what should have ended: programs and wardens on hosts, and the reference clock."""
    found = []
    for name in ["head", *rack.hosts]:
        for line in processes(rack.ns(name)).values():
            if "--start-at" in line or "fleet._warden" in line or "clock --answer" in line:
                found.append(f"{name}: {line[:90]}")
    return found


def state():
    """Returns what a run could leave on the machine: namespaces, mounts, interfaces, folders, shared memory."""
    mounts = pathlib.Path("/proc/mounts").read_text().splitlines()
    return {
        "namespaces": sorted(os.listdir("/run/netns")) if os.path.isdir("/run/netns") else [],
        "mounts": sorted(line.split()[1] for line in mounts),
        "interfaces": sorted(os.listdir("/sys/class/net")),
        "folders": sorted(name for name in os.listdir(tempfile.gettempdir()) if name.startswith("netlathe-fleet-")),
        "memory": sorted(name for name in os.listdir("/dev/shm") if "netlathe" in name),
        "undo": sorted(os.listdir("/run/netlathe")) if os.path.isdir("/run/netlathe") else [],
    }


def kills(times):
    generator = random.Random(int(os.environ.get("SEED", "36")))
    before = state()
    failed = 0
    for number in range(times):
        what = generator.choice(["agent", "link", "scheduler", "controller", "ctrl-c"])
        on_loss = generator.choice(["end", "go-on"])
        victim = generator.choice(HOSTS)
        # From the first clock comparison, through arming, to the last frame.
        at_s = generator.uniform(0.0, 6.0)
        rack = Rack(HOSTS)
        wrong = []
        try:
            options = {"lease_s": 3.0, "on_loss": on_loss, "clock_s": 0.5, "max_clock_error_s": 20e-3}
            process = rack.drive(roles=[{"name": "sender", "hosts": HOSTS, "command": gen(rate="50pps", count="200")}], duration_s=30, options=options)
            for line in process.stdout:
                if line == "begun\n":
                    break
            time.sleep(at_s)
            if what == "link":
                ip("-n", rack.ns(victim), "link", "set", "ctl0", "down")
            else:
                programs = {"agent": (victim, "dask_worker"), "scheduler": ("head", "dask_scheduler")}
                name, program = programs.get(what, ("head", "fleet.py _control"))
                for pid, line in processes(rack.ns(name)).items():
                    if program in line:
                        os.kill(pid, signal.SIGINT if what == "ctrl-c" else signal.SIGKILL)
            try:
                out, err = process.communicate(timeout=90)
            except subprocess.TimeoutExpired:
                wrong.append("the controller did not end in 90 s")
                process.kill()
                out, err = process.communicate()
            lines = [line for line in out.splitlines() if line.startswith("result ")]
            result = json.loads(lines[-1].removeprefix("result ")) if lines else None
            missing = result["missing"] if result else {}
            done = {name: report["pipelines"][0]["out"]["frames"] for name, report in (result or {"reports": {}})["reports"].items() if report}
            # Not the ConnectionRefusedError that Dask logs.
            refused = "Refused: " in err
            if what == "ctrl-c" and result is None:
                # It ends all programs before it is raised.
                wrong += left_behind(rack) + ([] if "KeyboardInterrupt" in err else [f"no KeyboardInterrupt: {err[-2000:]}"])
            elif result is None and not refused and what != "controller":
                wrong.append(f"no result: {err[-2000:]}")
            if result and what in ("agent", "link"):
                if set(missing) - {victim}:
                    wrong.append(f"others are missing: {missing}")
                if on_loss == "go-on" and any(frames != 200 for name, frames in done.items() if name != victim):
                    wrong.append(f"others did not go on: {done}")
            # arm_s, the first lease of a program whose controller was killed while others armed, and its end.
            end = time.monotonic() + (80 if what == "controller" else 20)
            while left_behind(rack) and time.monotonic() < end:
                time.sleep(0.2)
            wrong += left_behind(rack)
        finally:
            rest = rack.close()
        after = state()
        new = {kind: sorted(set(after[kind]) - set(before[kind])) for kind in after}
        before = after
        if os.environ.get("SHARED"):
            # Other programs create namespaces and interfaces on this machine too.
            new = {kind: [name for name in names if kind == "folders" or MARK in name] for kind, names in new.items()}
        wrong += [f"{kind}: {names}" for kind, names in new.items() if names]
        failed += bool(wrong)
        say(kill=number, what=what, victim=victim, at_s=round(at_s, 2), on_loss=on_loss, refused=refused,
            missing={name: why[:80] for name, why in missing.items()}, frames=done, wrong=wrong, ended_by_the_rack=[line[:60] for lines in rest.values() for line in lines if "dask" not in line])
    say(kills=times, failed=failed)


def agents(count):
    import distributed
    from netlathe import fleet

    began = time.monotonic()
    cluster = distributed.LocalCluster(n_workers=4, threads_per_worker=4, processes=True, dashboard_address=None, silence_logs=50)
    with cluster, distributed.Client(cluster) as client:
        engine = fleet.Dask(client, agents_per_worker=-(-count // 4))
        phase = fleet.Phase("run", [fleet.Role("agent", count)], 2)
        scenario = fleet.Scenario([phase], max_clock_error_s=None, start_in_s=10, lease_s=30)
        result = fleet.run(scenario, engine, progress=lambda phase, states: None)
    merged = result.merged["run", "agent"]
    say(agents=count, took_s=round(time.monotonic() - began, 1), run_s=round(result.took_s, 1), missing=len(result.missing),
        hosts=len(merged["merged"]["hosts"]), starts_within_ms=merged["merged"]["start_spread_ns"] / 1e6)


def matrix(sites):
    if sites == 30:
        path, table = ROOT / "scenarios" / "sites-computed-30.csv", None
    else:
        # Distances on a ring: no pair has the same round trip in all rows.
        names = [f"site{i}" for i in range(1, sites + 1)]
        rows = [["rtt ms", *names]]
        for i, name in enumerate(names):
            rows.append([name, *["" if i == j else f"{4 + 3.7 * min(abs(i - j), sites - abs(i - j)):.1f}" for j in range(sites)]])
        table = tempfile.NamedTemporaryFile("w", suffix=".csv", delete=False)
        table.write("\n".join(",".join(row) for row in rows) + "\n")
        table.close()
        path = table.name
    name = f"{MARK}-world"
    before = state()
    began = time.monotonic()
    subprocess.run([PROGRAM, "lab", "up", name, "--matrix", str(path)], check=True, stdout=subprocess.DEVNULL)
    up_s = time.monotonic() - began
    try:
        began = time.monotonic()
        done = subprocess.run([PROGRAM, "lab", "check", name, "--json"], capture_output=True, text=True)
        check_s = time.monotonic() - began
        found = json.loads(done.stdout)
    finally:
        subprocess.run([PROGRAM, "lab", "down", name], check=True)
        if table:
            os.unlink(table.name)
    say(matrix=sites, up_s=round(up_s, 2), check_s=round(check_s, 1), status=done.returncode, about={key: value for key, value in found.items() if not isinstance(value, list)},
        left={kind: sorted(set(list_) - set(before[kind])) for kind, list_ in state().items() if set(list_) - set(before[kind])})


if __name__ == "__main__":
    # As Ctrl-C does, so that racks and labs are closed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    what = sys.argv[1] if len(sys.argv) > 1 else ""
    if what == "_control":
        control(json.loads(sys.argv[2]))
    elif what in ("skew", "crests", "kills", "agents", "matrix"):
        usual = {"skew": 10, "crests": 3, "kills": 20, "agents": 1000, "matrix": 30}[what]
        globals()[what](int(sys.argv[2]) if len(sys.argv) > 2 else usual)
    else:
        sys.exit(__doc__)
