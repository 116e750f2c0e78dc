"""Table 1 and Fig. 6: 100 000 frames of random sizes, one every 10 µs, by fillers and by a timer."""

import gaps
import plot
from programs import REPEATS, SERVER_MAC, emptied, kept, netlathe, one, received
from results import middle, ratio, record, row

TITLE = "Table 1 and Fig. 6: 100 000 frames of 64 to 1500 B, one every 10 µs"
CLIENTS = 1
COUNT = 100_000
ASKED_PS = 10_000_000
BANDS = 200


def stream(destination=""):
    return f"udp 10.77.0.1:1000 > 10.77.0.100:2000 size random 64B-1500B{destination}"


def judged(starts):
    between = gaps.between(starts)
    return {**gaps.summary(between), **gaps.errors(between, [ASKED_PS] * len(between)), "bands": gaps.envelope(between, BANDS)}


def on_line(port, name):
    places = kept(f"{name}.csv")
    report = netlathe("gen", "--out", f"{port},frames={places}", "--gap", "10us", "--count", COUNT, "--seed", 1,
                      "--stream", stream())
    return {**judged(gaps.listed(places)[0]), "underruns": one(report).get("line", {}).get("underruns", 0)}


def virtual():
    return {"wire": on_line("wire:10G", "wire")}


def real():
    return {"line": middle([on_line("line:10G,slots=65536", "line") for _ in range(REPEATS)], "sd_ns")}


def live():
    return {"veth": middle([over_veth() for _ in range(REPEATS)], "sd_ns")}


def over_veth():
    sender = ["gen", "--out", "if:s0", "--gap", "10us", "--count", COUNT, "--seed", 1,
              "--stream", stream(f" dmac {SERVER_MAC}")]
    pipeline, _ = received("--write", kept("veth.pcap"), sender=sender)
    stamps = gaps.numbered(kept("veth.pcap"))
    starts = [stamps[number] for number in sorted(stamps)]
    return {**judged(starts), "lost": COUNT - len(starts), "kernel_drops": pipeline["flow"]["kernel_drops"]}


def result(wire, line=None, veth=None):
    ways = {key: way for key, way in (("wire", wire), ("line", line), ("veth", veth)) if way}

    def ours(figure):
        figures = {key: way[figure] for key, way in ways.items()}
        return {**figures, "ratio": ratio(figures.get("veth"), figures.get("line"))}

    rows = [
        row("largest − least gap", "ns", asked=0, paper=10.0, trex=310_953.01, ratio_paper=310_953.01 / 10, **ours("range_ns")),
        row("standard deviation", "ns", asked=0, paper=3.4, trex=5_192.22, ratio_paper=5_192.22 / 3.4, **ours("sd_ns")),
        row("mean", "ns", asked=10_000, paper=10_000.4, trex=9_996.69,
            **{key: way["mean_ns"] for key, way in ways.items()}),
        row("error of a gap, median", "ns", asked=0, **ours("p50_ns")),
        row("error of a gap, 99th percentile", "ns", asked=0, **ours("p99_ns")),
        row("gaps within 1 µs of the target", "%", asked=100, **{key: way["within_1us"] * 100 for key, way in ways.items()}),
    ]
    definitions = [
        "gap: start of a frame to start of the next; error: |gap − 10 µs|. The seed gives the same frames in all netlathe columns.",
        "model wire, line: by the position of each frame on a line of 10 Gbit/s, in ps; model wire in virtual time, line in "
        "real time (`line:10G`, fillers, no NIC). The paper: a tester's capture of a mirrored port of a NIC's line.",
        "timer, veth: departures by the clock over a veth pair, by the receiver's kernel stamps, including their error.",
        f"Live: median of {REPEATS} runs, per figure; the drawing shows the run with the median deviation.",
        "A ratio is left out if the divisor is 0. The paper's text gives 9 996.0 ns for tRex's mean, its table 9 996.69.",
    ]
    notes = []
    if line and line["underruns"]:
        notes.append(emptied(line["underruns"]))
    if veth and veth["lost"]:
        notes.append(f"{veth['lost']} of {COUNT} frames did not arrive over veth: gaps there span the lost frames")
    return record("table1", TITLE, rows, definitions=definitions, notes=notes,
                  series={key: way["bands"] for key, way in ways.items()})


def drawing(found):
    """Fig. 6: the gap by the frame's number."""
    chart = plot.Chart("frame", "gap (µs)", logarithmic=True)
    series = found["series"]
    if "veth" in series:
        chart.band([(first, low, high) for first, low, _, high in series["veth"]], "b", "timer: least to largest")
        chart.line([(first, middle) for first, _, middle, _ in series["veth"]], "b")
    key = "line" if "line" in series else "wire"
    chart.line([(first, high) for first, _, _, high in series[key]], "a", "fillers: least to largest")
    chart.line([(first, low) for first, low, _, _ in series[key]], "a")
    return plot.page([chart], found["title"])
