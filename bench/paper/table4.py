"""Table 4: round trips of requests and responses over TCP, with nothing and with a delay of 50 ms one way."""

import json
import os
import sys
import time

import gaps
import programs
from inlab import run
from programs import SETTLE_S, kept, netlathe
from results import record, row
from transport import TRAFFIC, answering, capture, large_buffers, missed, through

TITLE = "Table 4: delay against request and response"
CLIENTS = 1
DELAY_MS = 50
STAGE = f"delay {DELAY_MS}ms"
FRAMES = 100_000
KINDS = {"rr": "RR", "crr": "CRR"}
TRIPS = {"rr": 1, "crr": 2}     # round trips of a transaction: CRR's has the handshake too
PAPER_MS = {"rr": (0.05, 50.29), "crr": (0.14, 100.57)}


def virtual():
    """The delay of each frame: from capture to capture, and onto the model line, where frames have a length."""
    source = capture("in.pcap", 1, FRAMES, "uniform 20us..80us")
    came = gaps.numbered(source)
    netlathe("shape", "--in", f"pcap:{source}", "--out", f"pcap:{kept('out.pcap')}", "--stage", STAGE)
    left = gaps.numbered(kept("out.pcap"))
    in_files = [left[number] - came[number] for number in came]
    netlathe("shape", "--in", f"pcap:{source}", "--out", f"wire:10G,frames={kept('out.csv')}", "--stage", STAGE)
    starts, _ = gaps.listed(kept("out.csv"))
    first = min(came.values())
    on_wire = [start - (came[number] - first) for number, start in enumerate(starts)]
    as_ms = {name: [min(delays) / 1e9, max(delays) / 1e9] for name, delays in (("pcap", in_files), ("wire", on_wire))}
    return {"wire": {**as_ms, "frames": len(on_wire)}}


def real():
    return {}


def live():
    large_buffers()
    found = {"lost": {}}
    with answering():
        for way, stages in (("none", []), ("delay", [STAGE])):
            with through(stages) as shape:
                shape.await_way()
                time.sleep(SETTLE_S)
                for kind in KINDS:
                    command = [sys.executable, TRAFFIC, kind, os.environ["NETLATHE_SERVER"], programs.seconds]
                    found[f"{kind} {way}"] = json.loads(run(command, "client"))
            found["lost"][way] = missed(shape.report)
    return {"live": found}


def result(wire, live=None):
    rows = []
    for kind, name in KINDS.items():
        trips = TRIPS[kind]
        for place, way in enumerate(("none", "delay")):
            found = live and live[f"{kind} {way}"]
            what = f"{name}, {'nothing added' if way == 'none' else STAGE + ' one way'}"
            rows.append(row(f"{what}: mean", "ms", paper=PAPER_MS[kind][place], live=found and found["mean_ms"]))
            rows.append(row(f"{what}: median", "ms", live=found and found["p50_ms"]))
            rows.append(row(f"{what}: 99 %", "ms", live=found and found["p99_ms"]))
            rows.append(row(f"{what}: transactions", "1/s", live=found and found["per_second"]))
        before, after = PAPER_MS[kind]

        def rise(figure):
            return live and live[f"{kind} delay"][figure] - live[f"{kind} none"][figure]

        rows.append(row(f"{name}: rise of the mean", "ms", asked=DELAY_MS * trips, paper=round(after - before, 2),
                        live=rise("mean_ms")))
        rows.append(row(f"{name}: rise of the median", "ms", asked=DELAY_MS * trips, live=rise("p50_ms")))
    for name, text in (("pcap", "from capture to capture"), ("wire", "onto an idle line")):
        rows.append(row(f"delay of a frame {text}: least", "ms", asked=DELAY_MS, wire=exact(wire[name][0])))
        rows.append(row(f"delay of a frame {text}: largest", "ms", asked=DELAY_MS, wire=exact(wire[name][1])))
    definitions = [
        f"Messages of 128 B both ways, one transaction at a time for {programs.seconds} s, by `bench/paper/traffic.py` (Python; the paper: "
        "netperf on machines with NICs, which we do not have); TCP_NODELAY, socket buffers of 32 MB.",
        "RR: one connection; from the first byte of a request to the last of its response. CRR: one connection per transaction; from the "
        "call of connect() to the last byte of the response, two round trips. netlathe timed none of them.",
        f"live: client and server in namespaces, `netlathe shape` between them over veth; the delay is only on the way to the "
        "server. The rise includes changes of the machine itself: an idle netlathe sleeps 50 µs between polls.",
        f"model wire: {wire['frames']} frames of 64 B, 20 to 80 µs apart, in virtual time. On a line a frame starts at a whole "
        "byte time: half of one is 0.4 ns.",
    ]
    return record("table4", TITLE, rows, definitions=definitions, notes=losses(live))


def exact(ms):
    """A delay to the picosecond."""
    return f"{ms:.9f}"


def losses(live):
    if not live:
        return []
    return [f"{way}: lost on the way: " + ", ".join(f"{frames} frames ({where})" for where, frames in lost.items())
            for way, lost in live["lost"].items() if lost]
