"""The result of an experiment: one JSON object, from which tables and drawings are made."""

import datetime
import json
import os
import platform
import statistics
import subprocess
import time

import programs
from inlab import binary

SCHEMA = 1
AS_THEY_ARE = ("curve", "bands", "lost")   # parts of a run that have no median
COLUMNS = {   # in the order of the table; an experiment has those that it has figures for
    "asked": ("", "asked"),
    "paper": ("paper", "LightShaper"),
    "pktgen": ("paper", "Pktgen-DPDK"),
    "trex": ("paper", "tRex"),
    "timer": ("paper", "timer"),
    "ratio_paper": ("paper", "rival ÷ LightShaper"),
    "wire": ("netlathe", "model wire"),
    "line": ("netlathe", "line, live"),
    "live": ("netlathe", "live"),
    "veth": ("netlathe", "timer, veth"),
    "ratio": ("netlathe", "timer ÷ filler"),
}


def row(metric, unit, **figures):
    """Returns a row of the table: the metric, its unit, and its figure by column (a number, or a text with the reason for none)."""
    unknown = set(figures) - set(COLUMNS)
    if unknown:
        raise ValueError(f"no such columns: {unknown}")
    return {"metric": metric, "unit": unit, "figures": {key: value for key, value in figures.items() if value is not None}}


def ratio(rival, ours):
    """Returns how many times larger the rival's figure is, or None if one is missing or ours is zero."""
    if not isinstance(rival, (int, float)) or not isinstance(ours, (int, float)) or not ours:
        return None
    return rival / ours


def busy_cpus(seconds=1.0):
    """Returns the CPUs that other programs or the hypervisor use over the next second. A load average would include the
    previous experiment."""
    def ran():
        with open("/proc/stat", encoding="ascii") as file:
            user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, file.readline().split()[1:9])
        return user + nice + system + irq + softirq + steal

    before, begin = ran(), time.monotonic()
    time.sleep(seconds)
    return (ran() - before) / os.sysconf("SC_CLK_TCK") / (time.monotonic() - begin)


def machine():
    """Returns what the figures depend on: the machine, its system, and this build."""
    cpu = "unknown"
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                cpu = line.split(":", 1)[1].strip()
                break
    git = ["git", "-C", os.path.dirname(os.path.abspath(__file__))]

    def said(*command):
        done = subprocess.run(command, capture_output=True, check=False, text=True)
        return done.stdout.strip() if done.returncode == 0 else "unknown"

    return {
        "cpu": cpu,
        "cpus": os.cpu_count(),
        "kernel": platform.release(),
        "netlathe": said(binary(), "--version"),
        "commit": said(*git, "rev-parse", "--short", "HEAD"),
        "python": platform.python_version(),
        "busy_cpus": round(busy_cpus(), 2),
    }


def middle(runs, key):
    """Combines runs: the median of each figure, and everything else from the run whose `key` is the median."""
    runs = sorted(runs, key=lambda run: run[key])
    base = runs[len(runs) // 2]

    def of(values, kept):
        if isinstance(kept, dict):
            return {name: of([value[name] for value in values], kept[name]) for name in kept}
        if isinstance(kept, (int, float)):
            return statistics.median(values)
        return kept

    return {name: base[name] if name in AS_THEY_ARE else of([run[name] for run in runs], base[name]) for name in base}


def record(name, title, rows, *, definitions, notes=(), series=None):
    """Returns the result of an experiment, without the fields that `stamped` adds."""
    return {"schema": SCHEMA, "experiment": name, "title": title, "rows": rows, "definitions": list(definitions),
            "notes": list(notes), "series": series or {}}


def stamped(result, before, took_s, virtual):
    """Returns the result with its date, duration, machine and commands."""
    if before["busy_cpus"] > before["cpus"] / 4 and not virtual:
        result["notes"].append(f"other programs kept {before['busy_cpus']} of this machine's {before['cpus']} CPUs busy in the second "
                               "before this began: figures of live runs say little; model wire does not depend on that")
    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    return {**result, "machine": before, "date": now, "took_s": round(took_s, 1), "commands": list(programs.commands)}


def path(folder, name):
    return os.path.join(folder, f"lightshaper-{name}.json")


def save(folder, result):
    os.makedirs(folder, exist_ok=True)
    with open(path(folder, result["experiment"]), "w", encoding="utf-8") as file:
        json.dump(result, file, ensure_ascii=False, indent=1)
        file.write("\n")


def load(folder, name):
    with open(path(folder, name), encoding="utf-8") as file:
        return json.load(file)


def shown(figure):
    """Formats a figure for people: up to six digits, with separated thousands, small figures as powers of ten."""
    if figure is None:
        return ""
    if isinstance(figure, str):
        return figure
    size = abs(figure)
    if size == 0:
        return "0"
    if size < 1e-3:
        digits, power = f"{figure:.2e}".split("e")
        return f"{digits}e{int(power)}"
    if size >= 1e6:
        return f"{figure:,.0f}".replace(",", " ")
    digits = f"{figure:.6g}" if size >= 1 else f"{figure:.4g}"
    whole, _, part = digits.partition(".")
    return f"{int(whole):,}".replace(",", " ") + (f".{part}" if part else "") if int(whole) else digits


def grid(result):
    """The table as rows of texts; the first two are the heading."""
    used = [key for key in COLUMNS if any(key in line["figures"] for line in result["rows"])]
    groups, last = [], ""
    for key in used:
        group = COLUMNS[key][0]
        groups.append(group if group != last else "")
        last = group
    body = [[f"{line['metric']}", line["unit"], *(shown(line["figures"].get(key)) for key in used)]
            for line in result["rows"]]
    return [["", "", *groups], ["", "unit", *(COLUMNS[key][1] for key in used)], *body]


def table(result):
    """The table for a terminal."""
    cells = grid(result)
    widths = [max(len(line[place]) for line in cells) for place in range(len(cells[0]))]
    lines = []
    for line in cells:
        left = line[0].ljust(widths[0]) + "  " + line[1].ljust(widths[1])
        lines.append(("  " + left + "".join("  " + cell.rjust(width) for cell, width in zip(line[2:], widths[2:]))).rstrip())
    return "\n".join(lines)


def markdown(result):
    """The table for the documents."""
    groups, heads, *body = grid(result)
    last, merged = "", []
    for group, head in zip(groups, heads):
        last = group or (last if head not in ("", "unit", "asked") else "")
        merged.append(f"{last}: {head}" if last else head)
    lines = ["| " + " | ".join(merged) + " |", "|---|---|" + "---:|" * (len(merged) - 2)]
    lines += ["| " + " | ".join(line) + " |" for line in body]
    return "\n".join(lines)


def printed(result):
    """Formats a whole result for a terminal."""
    where = result["machine"]
    lines = [f"{result['title']}", "", table(result), ""]
    lines += [f"  {definition}" for definition in result["definitions"]]
    lines += [f"  note: {note}" for note in result["notes"]]
    lines.append(f"  {result['date']}, {where['cpus']} CPUs ({where['cpu']}), Linux {where['kernel']}, "
                 f"{where['busy_cpus']} CPUs busy before the run, {result['took_s']} s")
    return "\n".join(lines)
