"""Table 2: gaps of chi-square and Poisson laws, 100 000 frames of 64 B, by fillers and by a timer."""

import gaps
import plot
from programs import SERVER_MAC, emptied, kept, netlathe, one, received
from results import ratio, record, row

TITLE = "Table 2: gaps of a law, 100 000 frames of 64 B"
CLIENTS = 1
COUNT = 100_000
SEED = 1
BINS, LOW_PS, HIGH_PS = 100, 80_000_000, 120_000_000
# Name and law in netlathe's notation. The paper gives "mean 100 µs, range 80 to 120 µs", and no law here has both.
LAWS = {
    "χ² in": "chi2 df 6 in 80us..120us",
    "χ² mean": "chi2 df 6 mean 100us in 80us..120us",
    "χ² in, even": "chi2 df 6 in 80us..120us sampling stratified",
    "Poisson in": "poisson lambda 2 in 80us..120us",
    "Poisson mean": "poisson lambda 2 mean 100us in 80us..120us",
    "Poisson in, even": "poisson lambda 2 in 80us..120us sampling stratified",
}
PAPER = {
    "χ²": {"ks2_d": (0.004092, None), "mse": (1.65e-6, 1.10e-5), "kl": (2.98e-3, 6.01e-3)},
    "Poisson": {"ks2_d": (0.004461, None), "mse": (5.69e-6, 1.60e-4), "kl": (5.59e-4, 1.06e-2)},
}
FIGURES = (
    ("ks_d", "KS D, one sample", ""),
    ("ks2_d", "KS D, two samples", ""),
    ("chi2_p", "χ² over the atoms: p", ""),
    ("mse", "MSE", ""),
    ("kl", "KL", "nat"),
    ("p50_ns", "error of a gap, median", "ns"),
    ("p99_ns", "error of a gap, 99 %", "ns"),
)


def stream(destination=""):
    return f"udp 10.77.0.1:1000 > 10.77.0.100:2000 size 64B{destination}"


def asked_for(law):
    return ["--gap", law, "--count", COUNT, "--seed", SEED]


def judged(starts, law, ideal):
    """Compares starts in ps with the law by `netlathe measure`, and each gap with the gap that was drawn for it."""
    frame = bytes(60)
    gaps.write_capture(kept("judged.pcap"), (((start + 500) // 1000, frame) for start in starts))
    fit = one(netlathe("measure", "--pcap", kept("judged.pcap"), "--expect", law))["fit"]
    got = gaps.between(starts)
    wanted = ("count", "ks_d", "ks2_d", "ks2_critical_05", "ks_p", "chi2", "chi2_df", "chi2_p", "mse", "kl", "bins")
    fit = {name: "infinite" if fit[name] is None else fit[name] for name in wanted if name in fit}
    return {**fit, **gaps.errors(got, gaps.between(ideal)),
            "mean_ns": gaps.summary(got)["mean_ns"],
            "histogram": gaps.histogram(got, LOW_PS, (HIGH_PS - LOW_PS) // BINS, BINS)}


def drawn(law):
    """Returns the starts on the model line, which match the drawn gaps to half a byte time, and netlathe's report."""
    report = netlathe("gen", "--out", f"wire:10G,frames={kept('wire.csv')}", *asked_for(law), "--stream", stream())
    return gaps.listed(kept("wire.csv"))[0], one(report)["conformance"]


def virtual():
    found = {}
    for name, law in LAWS.items():
        starts, conformance = drawn(law)
        # Compared with itself, the model line has no error. Its rounding is in the report only.
        found[name] = {**judged(starts, law, starts), "p50_ns": conformance["p50_ns"], "p99_ns": conformance["p99_ns"]}
    return {"wire": found}


def real():
    found = {}
    for name, law in LAWS.items():
        port = f"line:10G,slots=65536,frames={kept('line.csv')}"
        report = netlathe("gen", "--out", port, *asked_for(law), "--stream", stream())
        starts = gaps.listed(kept("line.csv"))[0]
        found[name] = {**judged(starts, law, drawn(law)[0]), "underruns": one(report)["line"]["underruns"]}
    return {"line": found}


def live():
    found = {}
    for name, law in LAWS.items():
        sender = ["gen", "--out", "if:s0", *asked_for(law), "--stream", stream(f" dmac {SERVER_MAC}")]
        received("--write", kept("veth.pcap"), sender=sender)
        stamps = gaps.numbered(kept("veth.pcap"))
        ideal, _ = drawn(law)
        # If a frame was lost, the asked gap is that between its neighbours.
        numbers = sorted(stamps)
        found[name] = {**judged([stamps[n] for n in numbers], law, [ideal[n] for n in numbers]),
                       "lost": COUNT - len(numbers)}
    return {"veth": found}


def result(wire, line=None, veth=None):
    ways = {key: way for key, way in (("wire", wire), ("line", line), ("veth", veth)) if way}
    rows = []
    for name in LAWS:
        paper = PAPER[name.split()[0]] if "even" not in name else {}
        for figure, metric, unit in FIGURES:
            figures = {key: way[name][figure] for key, way in ways.items() if figure in way[name]}
            rival = dict(zip(("paper", "timer"), paper.get(figure, ())))
            if "ks_d" not in wire[name] and figure == "ks2_d" and rival:
                figures = {key: "not for atoms" for key in ways}
            if not figures:
                continue
            against = None if figure == "chi2_p" else ratio(figures.get("veth"), figures.get("line"))
            rows.append(row(f"{name}: {metric}", unit, **rival, **figures, ratio=against,
                            ratio_paper=ratio(rival.get("timer"), rival.get("paper"))))
    critical = wire["χ² in"]["ks2_critical_05"]
    definitions = [
        "laws: " + "; ".join(f"{name}: `{law}`" for name, law in LAWS.items()) + ".",
        "in: the law cut at its 1e-4 quantiles and mapped onto the range (its mean is then 88.4 µs, for Poisson 88.9 µs). "
        "mean: set to 100 µs, values outside the range drawn again. even: one gap from each of 99 999 equally likely strata, "
        "so that the remaining error is not chance. The paper does not say whether it kept the mean or the range.",
        f"KS D: largest distance of the distribution functions, to the law (one sample) or to as many ideal draws of it (two, "
        f"as in the paper: critical value {critical:.6f} here, 0.006073 there). KS does not apply to discrete laws (atoms); χ² does.",
        "MSE: mean over the bins of (share of gaps − the law's)²; KL: Σ p·ln(p ÷ q), p of the gaps, q of the law. χ²: 100 equal "
        "bins from 80 to 120 µs (of the law's 1e-4 quantiles for `mean`) and one beyond each end; Poisson: one bin per atom, "
        "each gap counted at the nearest. KL is infinite if gaps lie outside the law. The paper's bins are unknown, so only "
        "ratios compare.",
        "Independent draws alone give an MSE and KL of about 1e-7 and 5e-4 here. They hide the error of pacing; `even` shows it.",
        "error of a gap: |gap got − gap drawn for it|; live compared with the model line's gaps, there from the report. An error below "
        "2.2 µs does not move a gap to another atom, so for Poisson only this figure shows it, not MSE and KL.",
        "model wire, line: by the position of each frame on a line of 10 Gbit/s; line in real time (`line:10G`, fillers, no NIC). "
        "timer, veth: by the clock over a veth pair, by the receiver's kernel stamps. `netlathe measure` judges all.",
    ]
    notes = []
    for name, found in (line or {}).items():
        if found["underruns"]:
            notes.append(f"{name}: {emptied(found['underruns'])}")
    for name, found in (veth or {}).items():
        if found["lost"]:
            notes.append(f"{name}: {found['lost']} of {COUNT} frames did not arrive over veth")
    series = {name: {key: way[name]["histogram"] for key, way in ways.items()} for name in ("χ² in", "Poisson in")}
    return record("table2", TITLE, rows, definitions=definitions, notes=notes, series=series)


def drawing(found):
    """Draws the shares of gaps in 100 bins, for both kinds of pacing."""
    charts = []
    for name, ways in found["series"].items():
        chart = plot.Chart("gap (µs)", "share of gaps (%)", title=LAWS[name])
        for key, kind, way in (("veth", "b", "timer"), ("line" if "line" in ways else "wire", "a", "fillers")):
            if key not in ways:
                continue
            shares = [share * 100 for share in ways[key]["shares"]]
            chart.line(plot.steps(shares, 40 / BINS, 80), kind, way)
        charts.append(chart)
    return plot.page(charts, found["title"])
