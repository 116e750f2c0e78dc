#!/usr/bin/env python3
"""What control costs a run, and how fast a change shows at the receiver, on veth in a lab of this machine.

Gaps: `netlathe gen` sends a frame every 100 us, in three ways that take turns: without a control socket, with one, and with ten
clients on it that ask for the events. Four of them read, four never read, two leave. The median error of the gaps is compared
within each round.

Change: iperf3 downloads by four TCP flows through a shaped pipeline. `netlathe ctl set down.rate 20Mbps` runs while they flow. A
socket in the client stamps each frame that arrives. The script prints when the received rate stays near the new one, what the
report says of both segments, and whether a frame was lost.

    python3 bench/control.py [gaps|change]      writes bench/results/control.json

NETLATHE is the program; ROUNDS is the number of rounds.
"""

import json
import os
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "scripts"))
from inlab import Failed, await_line, await_way, binary, finish, run, start, stop, within

RESULTS = os.path.join(ROOT, "bench", "results", "control.json")
ROUNDS = int(os.environ.get("ROUNDS", "7"))
SECONDS = 4
READ, STALLED, GONE = 4, 4, 2
BEFORE, AFTER = 60e6, 20e6
WINDOW_NS = 50_000_000
NEAR = 0.05             # of the rate, for a window of about 80 frames
WAYS = ("plain", "control", "clients")


def connect(path, alive):
    """Connects a client to the events of a run. Waits while the run is starting."""
    until = time.monotonic() + 20
    while True:
        client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            client.connect(path)
            client.sendall(b"GET /v1/events HTTP/1.1\r\nHost: run\r\n\r\n")
            return client
        except OSError:
            client.close()
            if time.monotonic() > until or not alive():
                raise Failed(f"{path} takes no clients") from None
            time.sleep(0.02)


def gaps_once(way, folder):
    """Makes one run. Returns the median error of its gaps in ns, and the bytes of events that its clients read."""
    path = os.path.join(folder, "run.sock")
    line = [binary(), "gen", "--out", "s0", "--stream", "udp 10.77.0.1:1 > 10.77.0.2:9 size 64B dmac 02:00:00:00:00:01",
            "--gap", "fixed 100us", "--duration", f"{SECONDS}s", "--json", "-q"]
    line += [] if way == "plain" else ["--control", f"unix:{path}"]
    process = start(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    read, clients = 0, []
    if way == "clients":
        clients = [connect(path, lambda: process.poll() is None) for _ in range(READ + STALLED + GONE)]
        for client in clients:
            client.setblocking(False)
        begin = time.monotonic()
        while process.poll() is None:
            for client in clients[:READ]:
                try:
                    read += len(client.recv(1 << 16))
                except BlockingIOError:
                    pass
            if len(clients) > READ + STALLED and time.monotonic() > begin + SECONDS / 2:
                for client in clients[READ + STALLED:]:
                    client.close()
                del clients[READ + STALLED:]
            time.sleep(0.1)
    out, error = finish(process, 60)
    for client in clients:
        client.close()
    if process.returncode:
        raise Failed(f"gen ended with {process.returncode}: {error.decode().strip()}")
    report = json.loads(out)["pipelines"][0]
    return report["gap"]["error"]["p50_ns"], report["gap"]["error"]["p99_ns"], read


def gaps():
    rounds = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(ROUNDS):
            turn = [WAYS[(number + i) % len(WAYS)] for i in range(len(WAYS))]
            got = {way: gaps_once(way, folder) for way in turn}
            if not got["clients"][2]:
                raise Failed("the clients read no event")
            rounds.append({way: {"p50_ns": got[way][0], "p99_ns": got[way][1]} for way in WAYS})
            print("gaps   ", "   ".join(f"{way} {got[way][0]:8.1f} ({got[way][1]:.0f}) ns" for way in WAYS), flush=True)
    ratio = lambda of, to: statistics.median(one[of]["p50_ns"] / one[to]["p50_ns"] for one in rounds)
    result = {"gap": "100us", "seconds": SECONDS, "clients": {"read": READ, "stalled": STALLED, "gone": GONE},
              "clients_by_control": ratio("clients", "control"), "control_by_plain": ratio("control", "plain"),
              "clients_by_plain": ratio("clients", "plain"), "rounds": rounds}
    print(f"median error of gaps: ten clients / none {result['clients_by_control']:.3f}, with a socket / without "
          f"{result['control_by_plain']:.3f}, ten clients / without a socket {result['clients_by_plain']:.3f}", flush=True)
    return result


# Stamps the frames that arrive at the client with the machine's clock. Writes 8 bytes of ns and 4 of length for each.
CAPTURE = """
import signal, socket, struct, sys
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
s.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)   # SO_RCVBUFFORCE
s.setsockopt(socket.SOL_SOCKET, 35, 1)   # SO_TIMESTAMPNS
s.bind(("eth0", 0))
signal.signal(signal.SIGINT, signal.default_int_handler)
print("bound", flush=True)
frames, room = bytearray(), bytearray(64)
try:
    while True:
        length, parts, _, address = s.recvmsg_into([room], 64, socket.MSG_TRUNC)
        if address[2] != socket.PACKET_OUTGOING:
            seconds, ns = struct.unpack("qq", parts[0][2])
            frames += struct.pack("=qi", seconds * 10**9 + ns, length)
except KeyboardInterrupt:
    pass
_, lost = struct.unpack("II", s.getsockopt(263, 6, 8))
sys.stdout.buffer.write(struct.pack("I", lost) + frames)
"""
SCENARIO = """schema = 1
[[pipeline]]
name = "down"
in   = "if:s0"
out  = "if:c0"
rate = "80Mbps"
"""
FCS = 4


def followed(frames, changed_at):
    """Returns how the client's rate followed a change: the ms from the change to the first window of 50 ms near the new rate;
    the mean from 100 ms to 200 ms after the change; and the share of all windows from 100 ms on that were near the new rate."""
    first, bits, near_at, near, windows, second = 0, 0, None, 0, 0, 0
    for i, (at, length) in enumerate(frames):
        bits += (length + FCS) * 8
        while frames[first][0] <= at - WINDOW_NS:
            bits -= (frames[first][1] + FCS) * 8
            first += 1
        after = at - changed_at
        if 100_000_000 < after <= 200_000_000:
            second += (length + FCS) * 8
        if after < WINDOW_NS:
            continue
        is_near = abs(bits / (WINDOW_NS / 1e9) / AFTER - 1) <= NEAR
        if is_near and near_at is None:
            near_at = after / 1e6
        if after >= 100_000_000 + WINDOW_NS:
            windows += 1
            near += is_near
    return {"first_near_ms": near_at, "mean_100_to_200_ms_bps": second / 0.1, "windows_near_ratio": near / max(1, windows)}


def change_once(folder):
    path, scenario = os.path.join(folder, "change.sock"), os.path.join(folder, "change.toml")
    with open(scenario, "w") as file:
        file.write(SCENARIO)
    shaper = start([binary(), "run", scenario, "--control", f"unix:{path}", "--json"], stdout=subprocess.PIPE,
                   stderr=subprocess.PIPE)
    if not await_way(lambda: shaper.poll() is None):
        raise Failed("no frame passes the shaper")
    server = start(["iperf3", "-s", "-1", "-i", "0", "--forceflush"], "server", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    await_line(server.stdout, "listening", "iperf3")
    capture = start([sys.executable, "-c", CAPTURE], "client", stdout=subprocess.PIPE)
    await_line(capture.stdout, "bound", "the capture")
    download = start(["iperf3", "-c", os.environ["NETLATHE_SERVER"], "-R", "-P", "4", "-t", "30", "-i", "0"], "client",
                     stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    ctl = [binary(), "ctl", "--socket", path, "set", "down.rate"]
    try:
        time.sleep(2)
        # Wait, so that the segment before the change does not contain the start of TCP.
        run([*ctl, "60Mbps"])
        time.sleep(2)
        asked_at = time.time_ns()
        run([*ctl, "20Mbps"])
        done_at = time.time_ns()
        time.sleep(3)
        out, error = stop(shaper)
        if shaper.returncode:
            raise Failed(f"run ended with {shaper.returncode}: {error.decode().strip()}")
    finally:
        for process in (download, server):
            stop(process)
        seen = stop(capture)[0]
    lost_by_capture = struct.unpack_from("I", seen)[0]
    frames = list(struct.iter_unpack("=qi", seen[4:]))
    report = json.loads(out)["pipelines"][0]
    before, after = report["segments"][-2:]
    took = report["changes"][-1]
    # Frames after the end of the run were not shaped.
    frames = [frame for frame in frames if frame[0] < asked_at + 2_900_000_000]
    books = report["in"]["frames"] + report["copies"] - report["out"]["frames"] - sum(report["drops"].values()) - report["held"]
    return {
        "received": followed(frames, asked_at),
        "ctl_ms": (done_at - asked_at) / 1e6,
        "took_effect_us": (took["took_effect_at_ns"] - took["asked_at_ns"]) / 1e3,
        "before_bps": before["rate"]["mean_bps"],
        "after_bps": after["rate"]["mean_bps"],
        "drops": report["drops"],
        "in": report["in"]["frames"],
        "out": report["out"]["frames"],
        "held": report["held"],
        "unaccounted": books,
        "lost_by_capture": lost_by_capture,
    }


def change():
    rounds = []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(ROUNDS):
            rounds.append(change_once(folder))
            one = rounds[-1]
            got = one["received"]
            print(f"change  first window of 50 ms near after {got['first_near_ms']:.0f} ms, from 100 to 200 ms "
                  f"{got['mean_100_to_200_ms_bps'] / AFTER - 1:+.2%}, {got['windows_near_ratio']:.0%} near; ctl ran {one['ctl_ms']:.0f} "
                  f"ms, it took effect {one['took_effect_us']:.0f} us after it was asked\n        before "
                  f"{one['before_bps'] / BEFORE - 1:+.3%}   after {one['after_bps'] / AFTER - 1:+.3%}   in {one['in']} out "
                  f"{one['out']} held {one['held']} drops {one['drops']} unaccounted {one['unaccounted']}", flush=True)
    return {"before_bps": BEFORE, "after_bps": AFTER, "window_ms": WINDOW_NS / 1e6, "near": NEAR, "rounds": rounds}


def inside():
    parts = {"gaps": gaps, "change": change}
    chosen = sys.argv[1:] or list(parts)
    results = json.load(open(RESULTS)) if os.path.exists(RESULTS) else {}
    results.update({"schema": 1, "bench": "control", "kernel": os.uname().release, "cpus": os.cpu_count()})
    for name in chosen:
        if name not in parts:
            raise Failed(f"there is no part {name}: write {' or '.join(parts)}")
        results[name] = parts[name]()
    with open(RESULTS, "w") as file:
        json.dump(results, file, indent=1)
        file.write("\n")
    print(f"results: {os.path.relpath(RESULTS, ROOT)}")


if __name__ == "__main__":
    sys.exit(within("bench-control", inside))
