"""Table 3: what a delay and reordering do to the throughput of TCP, and whether the reordering is what was asked."""

import json
import os
import time

import gaps
import programs
from inlab import run
from programs import REPEATS, SETTLE_S, Background, has_stage, kept, netlathe, one
from results import middle, record, row
from table4 import losses
from transport import Served, capture, large_buffers, missed, through

TITLE = "Table 3: delay and reordering against TCP streams"
CLIENTS = 1
CONNECTIONS = 4
CONTROL = "cubic"
SHARE = 25
# The paper does not give the displacement of reordered frames. One position is the minimum. TCP considers a frame lost
# when three later ones have arrived, which a displacement of eight causes.
WAYS = {"none": [], "delay": ["delay 50ms"], "reorder": [f"reorder {SHARE}%"], "far": [f"reorder {SHARE}% extent 8"]}
PAPER_GBPS = {"none": 9.16, "delay": 0.96, "reorder": 0.53}
FLOWS, FRAMES = 8, 100_000
NO_STAGE = "this netlathe has no stage `reorder`: these figures are missing"


def per_flow(path):
    """Returns the reordered ratio (RFC 4737) of each flow, from the numbers of its frames in order of arrival."""
    flows = {}
    for _, frame, _ in gaps.records(path):
        number = gaps.number(frame)
        if number is not None:
            flows.setdefault(frame[34:36], []).append(number)
    ratios = [gaps.reordered_share(numbers) for numbers in flows.values()]
    return {"flows": len(ratios), "least": min(ratios), "largest": max(ratios), "mean": sum(ratios) / len(ratios),
            "frames": sum(map(len, flows.values()))}


def virtual():
    if not has_stage(WAYS["reorder"][0]):
        return {"wire": None}
    source = capture("flows.pcap", FLOWS, FRAMES, "10us")
    netlathe("shape", "--in", f"pcap:{source}", "--out", f"pcap:{kept('reordered.pcap')}", "--stage", WAYS["reorder"][0])
    return {"wire": per_flow(kept("reordered.pcap"))}


def real():
    return {}


def streams(stages):
    """TCP streams of iperf3 through netlathe: throughput at the receiver."""
    with Served(["iperf3", "-s", "-1", "--forceflush"], "listening"), through(stages) as shape:
        shape.await_way()
        time.sleep(SETTLE_S)
        command = ["iperf3", "-c", os.environ["NETLATHE_SERVER"], "-P", CONNECTIONS, "-t", programs.seconds, "-C", CONTROL, "-J"]
        end = json.loads(run(command, "client"))["end"]
    return {"gbps": end["sum_received"]["bits_per_second"] / 1e9, "retransmits": end["sum_sent"]["retransmits"],
            "lost": missed(shape.report)}


def live():
    large_buffers()
    found = {}
    for way, stages in WAYS.items():
        if all(map(has_stage, stages)):
            found[way] = middle([streams(stages) for _ in range(REPEATS)], "gbps")
    if "reorder" in found:
        found["ratio"] = reordered_live()
    return {"live": {**found, "lost": {way: figures["lost"] for way, figures in found.items() if "lost" in figures}}}


def reordered_live():
    """Numbered frames from the client through netlathe, as the server gets them."""
    with through(WAYS["reorder"]) as shape, \
            Background("measure", "--in", "if:eth0", "--write", kept("live.pcap"), node="server") as receiver:
        shape.await_way()
        time.sleep(SETTLE_S)
        sent = netlathe("gen", "--out", "if:eth0", "--count", 40_000, "--gap", "50us", "--stream",
                        f"udp 10.77.0.1:1000-{999 + FLOWS} > 10.77.0.100:2000 size 64B dmac 02:77:00:00:00:64", node="client")
        time.sleep(0.5)
    return {**per_flow(kept("live.pcap")), "sent": one(sent)["out"]["frames"],
            "kernel_drops": one(receiver.report)["flow"]["kernel_drops"]}


def result(wire, live=None):
    live = live or {}
    rows = []
    for way, stages in WAYS.items():
        found = live.get(way, {})
        what = stages[0] if stages else "nothing added"
        paper = PAPER_GBPS.get(way)
        rows.append(row(f"TCP streams, {what}", "Gbit/s", paper=paper, live=found.get("gbps")))
        if way != "none":
            part = found and found["gbps"] / live["none"]["gbps"] * 100
            rows.append(row("  as a share of nothing added", "%", paper=paper and round(paper / PAPER_GBPS["none"] * 100, 1),
                            live=part or None))
        rows.append(row("  segments sent again", "", live=found.get("retransmits")))
    ratio = live.get("ratio")
    for figure, text in (("mean", "mean"), ("least", "least"), ("largest", "largest")):
        rows.append(row(f"reordered frames of a flow, {text} of {FLOWS} flows", "%", asked=SHARE,
                        wire=wire and wire[figure] * 100, live=ratio and ratio[figure] * 100))
    error = 100 * (SHARE / 100 * (1 - SHARE / 100) / (FRAMES / FLOWS)) ** 0.5
    definitions = [
        f"TCP streams: {CONNECTIONS} connections (the paper: several) of iperf3 for {programs.seconds} s, socket buffers of 32 MB, "
        f"congestion control {CONTROL}; payload per second at the receiver, median of {REPEATS} runs.",
        "live: client and server in namespaces, `netlathe shape` between them over veth, stages on the way to the server only. "
        "Both ends and netlathe share this machine's CPUs. The paper used a machine for each, and 10 Gbit/s NICs.",
        "The extent of the paper's reordering is unknown: here one place, and eight. Its Linux 3.10 considered a frame "
        "lost after three later ones. Later kernels also wait for a part of a round trip (RACK), and lose less.",
        f"reordered: RFC 4737's ratio, the share of frames with a number less than that of an earlier frame, per flow; {FLOWS} flows of "
        f"numbered UDP frames, from captures. One standard deviation of chance is {error:.2f} % of {FRAMES // FLOWS} frames.",
    ]
    notes = losses(live or None)
    if wire is None:
        notes.append(NO_STAGE)
    return record("table3", TITLE, rows, definitions=definitions, notes=notes)
