"""Fig. 7: open-loop bursts of three clients, before and after their crests are put in order."""

import json
import os
import subprocess
import sys
import time

import gaps
import plot
from inlab import Failed, ended, start
from programs import CLIENT_IP, SETTLE_S, Background, has_option, kept, netlathe, one
from results import record, row
from transport import TRAFFIC, Served

TITLE = "Fig. 7: crests of three clients, before and after --sync"
CLIENTS = 3
SOURCES = [CLIENT_IP.format(n) for n in (1, 2, 3)]
GAP_MS = 20
SYNC = f"order {','.join(SOURCES)} gap {GAP_MS}ms silence 20ms wait 1s"
RATE = "600Mbps"
ROUNDS = 4
WINDOW_MS = 5
APART_PS = 50_000_000_000        # crests of one source are farther apart than this, frames of a crest are nearer
NO_SYNC = "this netlathe has no --sync: what comes after it is missing"


def arrivals(path):
    """Returns stamps in ps and lengths of the frames of the bursts, by source."""
    found = {}
    for ns, frame, length in gaps.records(path):
        if frame[12:14] == b"\x08\x00" and frame[23] == 17 and frame[36:38] == (2000).to_bytes(2, "big"):
            found.setdefault(".".join(map(str, frame[26:30])), []).append((ns * 1000, length))
    return found


def crests(stamps):
    """(first, last) of each run of frames without a long silence."""
    runs = []
    for stamp in stamps:
        if runs and stamp - runs[-1][1] < APART_PS:
            runs[-1][1] = stamp
        else:
            runs.append([stamp, stamp])
    return runs


def judged(path):
    found = arrivals(path)
    if set(found) != set(SOURCES):
        raise Failed(f"frames came from {sorted(found)} only")
    begin = min(frames[0][0] for frames in found.values())
    runs = {source: crests([stamp for stamp, _ in frames]) for source, frames in found.items()}
    rounds = min(map(len, runs.values()))
    spaces, in_order = [], 0
    for number in range(rounds):
        between = [runs[after][number][0] - runs[before][number][1] for before, after in zip(SOURCES, SOURCES[1:])]
        in_order += all(space > 0 for space in between)
        spaces += between
    windows = {}
    for source, frames in found.items():
        for stamp, length in frames:
            window = windows.setdefault((stamp - begin) // (WINDOW_MS * 10**9), {})
            window[source] = window.get(source, 0) + length
    shared = sum(1 for window in windows.values() if len(window) > 1)
    spaces.sort()
    last = max(windows) + 1
    rates = {source: [round(windows.get(w, {}).get(source, 0) * 8 / (WINDOW_MS / 1e3) / 1e6, 2) for w in range(last)]
             for source in SOURCES}
    return {"rounds": rounds, "in_order": in_order, "overlap": shared / len(windows),
            "frames": sum(map(len, found.values())),
            "gap_ms": {"least": spaces[0] / 1e9, "median": spaces[len(spaces) // 2] / 1e9, "largest": spaces[-1] / 1e9},
            "mbps": rates}


def merged():
    """A capture in which the bursts of all three sources begin together."""
    frames = []
    for n, source in enumerate(SOURCES):
        path = kept(f"source{n}.pcap")
        netlathe("gen", "--out", f"pcap:{path}", "--count", 2_400 * ROUNDS, "--rate", "burst 240Mbps for 80ms every 1s",
                 "--stream", f"udp {source}:1000 > 10.77.0.100:2000 size 1000B")
        # The bursts of the waveform repeat. Each source is a little later, so that no two frames are due at the same instant.
        frames += [(ns + n * 1_000, frame) for ns, frame, _ in gaps.records(path)]
    frames.sort(key=lambda entry: entry[0])
    gaps.write_capture(kept("merged.pcap"), frames)
    return kept("merged.pcap"), len(frames)


def virtual():
    source, count = merged()
    found = {"before": {**judged(source), "sent": count}}
    if has_option("shape", "--sync"):
        netlathe("shape", "--in", f"pcap:{source}", "--out", f"wire:10G,pcap={kept('synced.pcap')}", "--sync", SYNC)
        found["after"] = {**judged(kept("synced.pcap")), "sent": count}
    return {"wire": found}


def real():
    return {}


def run_bursts(*sync):
    """Three clients send bursts. Returns figures of what the server receives."""
    shape = ["shape", "--in", "c0", "--out", "s0", "--rate", RATE, *sync]
    with Served([sys.executable, TRAFFIC, "sink"], "ready"), Background(*shape) as shaper, \
            Background("measure", "--in", "if:eth0", "--write", kept("live.pcap"), node="server"):
        shaper.await_way()
        time.sleep(SETTLE_S)
        begin = time.monotonic() + 1.5
        command = [sys.executable, TRAFFIC, "bursts", os.environ["NETLATHE_SERVER"], begin, ROUNDS]
        senders = [start(command, f"client{n + 1}", stdout=subprocess.PIPE) for n in range(CLIENTS)]
        sent = sum(json.loads(ended(sender, command, 20))["sent"] for sender in senders)
        time.sleep(2.5)
    return {**judged(kept("live.pcap")), "sent": sent, "drops": one(shaper.report)["drops"]}


def live():
    found = {"before": run_bursts()}
    if has_option("shape", "--sync"):
        found["after"] = run_bursts("--sync", SYNC)
    return {"live": found}


def result(wire, live=None):
    live = live or {}
    rows = []
    for when in ("before", "after"):
        ways = {key: way[when] for key, way in (("wire", wire), ("live", live)) if when in way}
        if not ways:
            continue
        asked = when == "after"
        rows.append(row(f"{when}: time with two or three sources at once", "%", asked=0 if asked else None,
                        **{key: way["overlap"] * 100 for key, way in ways.items()}))
        rows.append(row(f"{when}: rounds with crests apart and in order", "", asked=f"{ROUNDS} of {ROUNDS}" if asked else None,
                        **{key: f"{way['in_order']} of {way['rounds']}" for key, way in ways.items()}))
        if asked:
            for figure in ("least", "median", "largest"):
                rows.append(row(f"{when}: end of a crest to start of the next, {figure}", "ms", asked=GAP_MS,
                                **{key: way["gap_ms"][figure] for key, way in ways.items()}))
        rows.append(row(f"{when}: frames that did not arrive", "", asked=0,
                        **{key: way["sent"] - way["frames"] for key, way in ways.items()}))
    definitions = [
        f"Three clients each send {ROUNDS} bursts, one per second, all starting together, independent of any loss "
        f"(open loop); `netlathe shape --rate {RATE}` carries them to the server. Then the same with `--sync '{SYNC}'`.",
        f"at once: share of windows of {WINDOW_MS} ms with frames of more than one source, among windows with any frames.",
        "crest: run of one source's frames without a silence of 50 ms; round k has the k-th crest of each source. A crest ends "
        "here with the start of its last frame, which lasts 0.8 µs on the model line.",
        "model wire: bursts of 240 Mbit/s for 80 ms in a capture, onto a line of 10 Gbit/s, in virtual time. live: bursts of a "
        "program (`bench/paper/traffic.py`), each half a sine wave of 80 ms, over veth, by the receiver's kernel stamps.",
        "The paper has only curves, no figures, and does not give the rate it shaped to.",
    ]
    notes = [] if "after" in wire else [NO_SYNC]
    shown = live or wire
    series = {when: {"window_ms": WINDOW_MS, "mbps": way["mbps"]} for when, way in shown.items()}
    for way in (wire, live):
        for found in way.values():
            del found["mbps"]
    return record("fig7", TITLE, rows, definitions=definitions, notes=notes, series=series)


def drawing(found):
    """Rate by source, before and after."""
    charts = []
    for when, way in found["series"].items():
        chart = plot.Chart("time (s)", "Mbit/s", title=f"{when} --sync")
        for kind, (source, rates) in zip("abc", way["mbps"].items()):
            chart.line(plot.steps(rates, way["window_ms"] / 1e3), kind, source)
        charts.append(chart)
    return plot.page(charts, found["title"])
