"""Compares the total trial time of `search --method mlrsearch` with the reference library's, on the same model devices.

python3 bench/mlrsearch.py [SEARCH]

The reference is MLRsearch 1.2.1 of PyPI, in a virtual environment below target/. SEARCH is the example `search` of
crates/engine, built. Both search the same goals, with the same width, trial and sum, against the same function from load,
duration and trial number to frames lost. Rows are devices; a device with random loss is searched with nine seeds, and its row
has the medians. Figures go to bench/results/mlrsearch.json.
"""

import collections
import json
import logging
import math
import os
import platform
import random
import statistics
import subprocess
import sys
import time
import venv

HERE = os.path.dirname(os.path.abspath(__file__))
TARGET = os.path.join(HERE, "..", "target")
RESULTS = os.path.join(HERE, "results", "mlrsearch.json")
VENV = os.path.join(TARGET, "mlrsearch", "venv")
REFERENCE = "MLRsearch==1.2.1"

MIN, MAX, WIDTH = 9_001.0, 14_880_952.0, 0.005
RATES = [20_000.0, 271_828.0, 1_000_000.0, 3_141_592.0, 12_345_678.0]
GOALS = {"0 %": [0.0], "0.5 %": [0.005], "0 % and 0.5 %": [0.0, 0.005]}
# Trial and sum in seconds: the default, and shorter sums.
LENGTHS = [(1.0, 21.0), (1.0, 5.0)]
SEEDS = range(9)


def step(limit):
    """Forwards up to the limit, and drops everything above it."""
    return lambda load, seconds, chance: max(0.0, load - limit) * seconds


def knee(limit):
    """Above the limit, loses 1 % more for each 10 % of load, until it forwards nothing."""
    return lambda load, seconds, chance: load * seconds * min(0.9, max(0.0, load / limit - 1.0) * 0.1)


def jitter(limit):
    """A step whose limit differs by 1 % (standard deviation) from trial to trial."""
    return lambda load, seconds, chance: max(0.0, load - limit * chance.gauss(1.0, 0.01)) * seconds


def noise(limit):
    """A step that also loses single frames at random: one in `limit` of those sent."""

    def lost(load, seconds, chance):
        expected = min(load, 2 * limit) * seconds / limit
        count, left = 0, math.exp(-expected)
        product = chance.random()
        while product > left:
            count += 1
            product *= chance.random()
        return count + max(0.0, load - 2 * limit) * seconds

    return lost


def loss(limit):
    """Has no limit, but loses a frame at random in half of the trials of 1 s at 0.69 `limit`."""
    return lambda load, seconds, chance: float(chance.random() > math.exp(-load * seconds / limit))


DEVICES = {"step": (step, 1), "knee": (knee, 1), "jitter": (jitter, len(SEEDS)), "noise": (noise, len(SEEDS)), "loss": (loss, len(SEEDS))}


class Model:
    """A device that counts the trials it had."""

    def __init__(self, lost, seed):
        self.lost, self.chance = lost, random.Random(seed)
        self.seconds, self.trials = 0.0, 0

    def trial(self, load, seconds):
        """Frames sent and lost."""
        self.seconds += seconds
        self.trials += 1
        sent = int(load * seconds)
        return sent, min(sent, math.ceil(self.lost(load, seconds, self.chance)))

    def figures(self, bounds):
        return {"seconds": self.seconds, "trials": self.trials, "bounds": bounds}


def reference(model, goals, trial, total):
    """The reference library's search."""
    from MLRsearch import AbstractMeasurer, Config, MeasurementResult, MultipleLossRatioSearch, SearchGoal

    class Measurer(AbstractMeasurer):
        def measure(self, intended_duration, intended_load):
            sent, lost = model.trial(intended_load, intended_duration)
            return MeasurementResult(intended_duration, intended_load, offered_count=sent, loss_count=lost)

    config = Config()
    config.goals = [
        SearchGoal(loss, 0.5, WIDTH, initial_trial_duration=trial, final_trial_duration=trial, duration_sum=total, fail_fast=False)
        for loss in goals
    ]
    config.min_load, config.max_load = MIN, MAX
    config.search_duration_max, config.warmup_duration = 1e9, None
    found = MultipleLossRatioSearch(config).search(Measurer())
    bound = lambda stat: None if stat is None else float(stat)
    return model.figures(
        [[bound(one.relevant_lower_bound), bound(one.relevant_upper_bound)] for one in found.values()]
    )


def ours(model, goals, trial, total):
    """The engine's search, which asks for trials line by line."""
    words = [MIN, MAX, WIDTH, trial * 1000, total * 1000, 0, *goals]
    with subprocess.Popen([SEARCH, *map(str, words)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        bounds, verdicts = [], []
        for line in program.stdout:
            kind, *values = line.split()
            if kind == "trial":
                load, seconds = map(float, values)
                sent, lost = model.trial(load, seconds)
                program.stdin.write(f"{sent} {lost}\n")
                program.stdin.flush()
            else:
                bounds.append([None if value == "-" else float(value) for value in values[:2]])
                verdicts.append(values[2])
    if program.returncode:
        sys.exit(f"{SEARCH} ended with status {program.returncode}")
    return model.figures(bounds) | {"verdicts": verdicts}


def width(figures):
    """The largest width of the bounds, of all goals."""
    return max([(upper - lower) / upper for lower, upper in figures["bounds"] if lower and upper], default=0.0)


def spread(runs):
    """The spread of a goal's lower bounds between seeds, as a share of the largest bound. The largest spread of all goals."""
    goals = zip(*[[lower for lower, _ in run["bounds"]] for run in runs])
    return max(1.0 - min(lower or 0.0 for lower in one) / max(lower or 1.0 for lower in one) for one in goals)


def row(name, limit, losses, trial, total):
    device, seeds = DEVICES[name]
    theirs = [reference(Model(device(limit), f"{seed} {limit}"), losses, trial, total) for seed in range(seeds)]
    own = [ours(Model(device(limit), f"{seed} {limit}"), losses, trial, total) for seed in range(seeds)]
    middle = lambda runs, figure: statistics.median(run[figure] for run in runs)
    return {
        "device": name,
        "limit": limit,
        "trial": trial,
        "sum": total,
        "losses": losses,
        "ratio": middle(own, "seconds") / middle(theirs, "seconds"),
        "reference": {"seconds": middle(theirs, "seconds"), "trials": middle(theirs, "trials"), "spread": spread(theirs), "runs": theirs},
        "ours": {"seconds": middle(own, "seconds"), "trials": middle(own, "trials"), "spread": spread(own), "runs": own},
    }


def environment():
    """The reference library, from PyPI."""
    python = os.path.join(VENV, "bin", "python3")
    if not os.path.exists(python):
        venv.create(VENV, with_pip=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", REFERENCE], check=True)
    library = subprocess.run(
        [python, "-c", "import MLRsearch, os; print(os.path.dirname(os.path.dirname(MLRsearch.__file__)))"],
        check=True, capture_output=True, text=True,
    )
    sys.path.insert(0, library.stdout.strip())


def machine():
    with open("/proc/cpuinfo") as lines:
        model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())
    return f"{model}, {os.cpu_count()} CPUs, {platform.system()} {platform.release()}"


def main():
    logging.disable(logging.CRITICAL)
    environment()
    rows = []
    print(f"{'device':8}{'limit':>12}{'sum':>6} {'loss':14}{'reference':>18}{'netlathe':>18}{'ratio':>7}{'width':>8}{'spread, ref':>12}{'ours':>8}  verdicts")
    for name in DEVICES:
        for trial, total in LENGTHS:
            for goal, losses in GOALS.items():
                for limit in RATES:
                    one = row(name, limit, losses, trial, total)
                    rows.append(one)
                    took = lambda who: f"{one[who]['seconds']:.1f} s, {one[who]['trials']:.0f} tr."
                    verdicts = sorted({verdict for run in one["ours"]["runs"] for verdict in run["verdicts"]})
                    print(
                        f"{name:8}{limit:12.0f}{total:6.0f} {goal:14}{took('reference'):>18}{took('ours'):>18}{one['ratio']:7.2f}"
                        f"{100 * max(map(width, one['ours']['runs'])):7.2f}%{100 * one['reference']['spread']:11.1f}%{100 * one['ours']['spread']:7.1f}%"
                        f"  {', '.join(verdicts)}",
                        flush=True,
                    )
                    # The file contains the bounds of the first seed, and the count of each verdict.
                    for who in ("reference", "ours"):
                        runs = one[who].pop("runs")
                        one[who]["bounds"] = runs[0]["bounds"]
                    one["ours"]["verdicts"] = collections.Counter(verdict for run in runs for verdict in run["verdicts"])
    summary = {}
    for name in DEVICES:
        ratios = [one["ratio"] for one in rows if one["device"] == name]
        summary[name] = {"median": statistics.median(ratios), "least": min(ratios), "most": max(ratios)}
        print(f"{name}: ratio of trial time {summary[name]['median']:.2f} in the median, {min(ratios):.2f} to {max(ratios):.2f}")
    figures = {"date": time.strftime("%Y-%m-%d"), "machine": machine(), "reference": REFERENCE, "ratios": summary, "rows": rows}
    with open(RESULTS, "w") as file:
        json.dump(figures, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    SEARCH = sys.argv[1] if len(sys.argv) > 1 else os.path.join(TARGET, "debug", "examples", "search")
    main()
