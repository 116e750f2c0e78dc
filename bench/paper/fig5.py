"""Fig. 5: a constant 5 Gbit/s, how much the rate varies, and the deviation of the gaps."""

import json

import gaps
import plot
from programs import REPEATS, SERVER_MAC, emptied, kept, netlathe, one, received
from results import middle, record, row

TITLE = "Fig. 5: a constant rate of 5 Gbit/s"
CLIENTS = 1
WINDOWS_MS = (1, 10, 100)
FRAME = 1518
ASKED_BPS = 5e9
PAPER_RANGE = {"paper": 2112, "pktgen": 30_624, "trex": 55_300}
PAPER_SD = {"paper": 243, "pktgen": 676, "trex": 921}


def stream(destination=""):
    return f"udp 10.77.0.1:1000 > 10.77.0.100:2000 size {FRAME}B{destination}"


def on_line(port, name, count):
    """Runs on a model line, and computes figures from the start times of the frames."""
    places = kept(f"{name}.csv")
    report = netlathe("gen", "--out", f"{port},frames={places}", "--rate", "5Gbps", "--count", count,
                      "--stream", stream(), "--report", kept(name))
    starts, lengths = gaps.listed(places)
    ranges = {}
    for ms in WINDOWS_MS:
        rates = gaps.window_rates(starts, lengths, ms * 1_000_000_000)
        ranges[str(ms)] = (max(rates) - min(rates)) / 1e3
    return {"range_kBps": ranges, "mean_bps": 8e12 * sum(lengths[:-1]) / (starts[-1] - starts[0]),
            "sd_ns": gaps.summary(gaps.between(starts))["sd_ns"], "curve": curve(name),
            "underruns": one(report).get("line", {}).get("underruns", 0)}


def curve(name):
    """Returns the rate over time, in the windows of the report page."""
    with open(kept(f"{name}/report.json"), encoding="utf-8") as file:
        (pipeline,) = json.load(file)["pipelines"]
    rate = pipeline["plots"]["rate"]
    return {"window_ns": rate["window_ns"], "bps": [round(bps) for bps in rate["got_bps"]]}


def virtual():
    return {"wire": on_line("wire:10G", "wire", 500_000)}


def real():
    return {"line": middle([on_line("line:10G,slots=65536", "line", 1_000_000) for _ in range(REPEATS)], "sd_ns")}


def live():
    return {"veth": middle([timers() for _ in range(REPEATS)], "sd_ns")}


def timers():
    """Timer pacing over veth: the result for 5 Gbit/s, and for 1 Gbit/s in windows of three lengths."""
    at_5 = over_veth("5Gbps", 10)
    found = {"at_5Gbps": {"mean_bps": at_5["rate"]["mean_bps"], "sd_ns": at_5["gap"]["std_ns"]}, "range_kBps": {}}
    for ms in WINDOWS_MS:
        pipeline = over_veth("1Gbps", ms)
        found["range_kBps"][str(ms)] = pipeline["rate"]["range_Bps"] / 1e3
        if ms == 10:
            found |= {"mean_bps": pipeline["rate"]["mean_bps"], "sd_ns": pipeline["gap"]["std_ns"],
                      "curve": curve("veth"), "kernel_drops": pipeline["flow"]["kernel_drops"]}
    return found


def over_veth(rate, window_ms):
    sender = ["gen", "--out", "if:s0", "--rate", rate, "--duration", "1.5s", "--stream", stream(f" dmac {SERVER_MAC}")]
    return received("--window", f"{window_ms}ms", "--report", kept("veth"), sender=sender)[0]


def result(wire, line=None, veth=None):
    ways = {"wire": wire, "line": line or {}, "veth": veth or {}}
    rows = [
        row("mean rate", "Gbit/s", asked=ASKED_BPS / 1e9, **{
            key: way["mean_bps"] / 1e9 for key, way in ways.items() if "mean_bps" in way and key != "veth"},
            veth=veth and veth["at_5Gbps"]["mean_bps"] / 1e9),
        row("range, windows unknown", "kB/s", asked=0, **PAPER_RANGE, ratio_paper="14.5, 26.2"),
    ]
    for ms in map(str, WINDOWS_MS):
        figures = {key: way["range_kBps"][ms] for key, way in ways.items() if way}
        rows.append(row(f"range, windows of {ms} ms", "kB/s", asked=0, **figures))
    share = {key: kBps * 1e3 * 8 / ASKED_BPS * 100 for key, kBps in PAPER_RANGE.items()}
    rows.append(row("range ÷ mean, windows unknown", "%", asked=0, **share))
    for ms in map(str, WINDOWS_MS):
        figures = {key: way["range_kBps"][ms] * 8e3 / way["mean_bps"] * 100 for key, way in ways.items() if way}
        rows.append(row(f"range ÷ mean, windows of {ms} ms", "%", asked=0, **figures))
    rows.append(row("standard deviation of the gaps", "ns", asked=0, **PAPER_SD, ratio_paper="2.8, 3.8",
                    **{key: way["sd_ns"] for key, way in ways.items() if way}))
    definitions = [
        "range: rate in the fastest window − rate in the slowest, of frames with FCS; a frame counts in the window in "
        "which it starts, and the last, unfinished window does not count.",
        "The paper's windows are unknown, and so is its frame size; here frames have 1518 B. No shaper can get below "
        "one frame per window: 1518, 151.8 and 15.18 kB/s.",
        "gap: start of a frame to start of the next; standard deviation: √(Σ(gap − mean)² ÷ n).",
        "model wire, line: by the position of each frame on a line of 10 Gbit/s, in ps; model wire in virtual time, line in "
        "real time (`line:10G`, fillers, no NIC).",
        "timer, veth: departures by the clock over a veth pair, by the receiver's kernel stamps. Its mean is the rate obtained at "
        "5 Gbit/s. Its other figures are for 1 Gbit/s, which it keeps.",
        f"Live: median of {REPEATS} runs, per figure; the drawing shows the run with the median deviation.",
    ]
    notes = []
    if line and line["underruns"]:
        notes.append(emptied(line["underruns"]))
    series = {key: way["curve"] for key, way in ways.items() if way}
    return record("fig5", TITLE, rows, definitions=definitions, notes=notes, series=series)


def drawing(found):
    """Rate against time, as a share of what was asked."""
    names = {"wire": "model wire, fillers", "line": "line in real time, fillers", "veth": "veth, timer (1 Gbit/s)"}
    asked = {"wire": 5e9, "line": 5e9, "veth": 1e9}
    chart = plot.Chart("time (s)", "rate ÷ asked (%)")
    for key, kind in (("veth", "b"), ("line", "c"), ("wire", "a")):
        if key in found["series"]:
            way = found["series"][key]
            step = way["window_ns"] / 1e9
            chart.line([((i + 0.5) * step, bps / asked[key] * 100) for i, bps in enumerate(way["bps"])], kind, names[key])
    return plot.page([chart], found["title"])
