#!/usr/bin/env python3
"""Writes the tables of docs/measurements.md from bench/results/tables, and the index of docs/adr/README.md from the records.

python3 scripts/tables.py           writes both
python3 scripts/tables.py --check   writes nothing; status 1 and a message if a page differs from its data

A file of bench/results/tables has the title of its section, the command that measures it, definitions, columns and rows.
A row has the date, the machine and one figure per column: a number, a text, null, a list (one figure per set of runs, in
order), or {"from": …, "to": …} for a range. `digits` of a column are decimals; `signed` writes the plus sign.
"""

import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
DATA = ROOT / "bench" / "results" / "tables"
MLRSEARCH = ROOT / "bench" / "results" / "mlrsearch.json"
MEASUREMENTS = ROOT / "docs" / "measurements.md"
DECISIONS = ROOT / "docs" / "adr" / "README.md"
MACHINES = ("family 6", "family 25", "family 26", "several", "not recorded")
BEGIN, END = "<!-- made by scripts/tables.py: begin -->\n", "<!-- made by scripts/tables.py: end -->\n"


class Wrong(Exception):
    """A data file or a page that cannot be used. The text names the problem and the place."""


def number(value, column):
    """A number with its decimals, a real minus sign and spaces between thousands."""
    sign = "−" if value < 0 else "+" if column.get("signed") and value > 0 else ""
    size = abs(value)
    text = f"{size:,.{column['digits']}f}" if "digits" in column else f"{size:,}"
    return sign + text.replace(",", " ")


def figure(value, column):
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return ", ".join(figure(each, column) for each in value)
    if isinstance(value, dict):
        start = number(value["from"], column) + " " if "from" in value else "up "
        return f"{start}to {number(value['to'], column)}"
    return number(value, column)


def heading(column):
    return f"{column['name']}, {column['unit']}" if column.get("unit") else column["name"]


def table(headings, rows):
    lines = [headings, ["---"] * len(headings), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def section(path):
    """The section of one data file."""
    data = json.loads(path.read_text())
    columns, rows = data["columns"], data["rows"]
    for row in rows:
        if len(row["figures"]) != len(columns):
            raise Wrong(f"{path.name}: {len(row['figures'])} figures for {len(columns)} columns: {row['figures']}")
        if row["machine"] not in MACHINES:
            raise Wrong(f"{path.name}: the machine {row['machine']!r} is none of {', '.join(MACHINES)}")
        if not re.fullmatch(r"2\d{3}-\d\d-\d\d( to 2\d{3}-\d\d-\d\d)?", row["date"]):
            raise Wrong(f"{path.name}: {row['date']!r} is not a date")
    places = {(row["date"], row["machine"]) for row in rows}
    measured = f"Measured by `{data['command']}`"
    if len(places) == 1:
        date, machine = places.pop()
        measured += f" on {date}; machine: {machine}"
        extra, headings = (lambda row: []), []
    else:
        extra, headings = (lambda row: [row["date"], row["machine"]]), ["date", "machine"]
    cells = [extra(row) + [figure(*pair) for pair in zip(row["figures"], columns)] for row in rows]
    about = "".join(f"- {line}\n" for line in data.get("about", []))
    return (f"## {data['title']}\n{measured}. Data: [{path.name}](../{path.relative_to(ROOT)}).\n\n"
            + about + ("\n" if about else "") + table(headings + [heading(column) for column in columns], cells))


def mlrsearch():
    """The section of the bench of MLRsearch, whose file also has every search."""
    data = json.loads(MLRSEARCH.read_text())
    ratio = {"digits": 2}
    rows = [[name, *(number(ratios[key], ratio) for key in ("median", "least", "most"))]
            for name, ratios in data["ratios"].items()]
    return (f"## MLRsearch and its reference library\nMeasured by `make bench-search` on {data['date']}; machine: "
            f"{data['machine']}. Data: [{MLRSEARCH.name}](../{MLRSEARCH.relative_to(ROOT)}).\n\n"
            f"- Total trial time of `search --method mlrsearch` ÷ that of {data['reference']}, on the same model devices: a hard limit "
            "(*step*), a *knee*, a limit that varies by 1 % (*jitter*), and two that lose at random (*noise*, *loss*).\n\n"
            + table(["device", "median ratio", "least", "most"], rows))


def measurements():
    sections = [*(section(path) for path in sorted(DATA.glob("*.json"))), mlrsearch()]
    titles = [text.split("\n")[0].removeprefix("## ") for text in sections]
    contents = "".join(f"- [{title}](#{anchor(title)})\n" for title in titles)
    return contents + "\n" + "\n".join(sections)


def anchor(title):
    """The anchor that GitHub and mdBook give to a heading."""
    return "".join(c for c in title.lower() if c.isalnum() or c in " -_").replace(" ", "-")


def decisions():
    """The index: number, title, date and status of each record, and the numbers that have none."""
    rows, expected = [], 1
    for path in sorted(DECISIONS.parent.glob("[0-9]*.md")):
        lines = path.read_text().splitlines()
        title = re.fullmatch(r"# (\d{4}) (.+)", lines[0])
        status = re.fullmatch(r"\*(\d{4}-\d\d-\d\d), (accepted|superseded by (\d{4}))\*", lines[2])
        if not title or not status or not path.name.startswith(title[1]):
            raise Wrong(f"{path.name} must begin with '# {path.name[:4]} Title', an empty line and "
                        f"'*2026-11-21, accepted*' or '…, superseded by 0001*'")
        if status[3] and not list(DECISIONS.parent.glob(f"{status[3]}-*.md")):
            raise Wrong(f"{path.name} is superseded by {status[3]}, which does not exist")
        rows += [[f"{missing:04}", "*not used*", "", ""] for missing in range(expected, int(title[1]))]
        rows.append([title[1], f"[{title[2]}]({path.name})", status[1], status[2]])
        expected = int(title[1]) + 1
    return table(["number", "title", "date", "status"], rows)


def filled(path, text):
    """The page with the text between its two marks."""
    page = path.read_text()
    if page.count(BEGIN) != 1 or page.count(END) != 1:
        raise Wrong(f"{path.relative_to(ROOT)} must have each of these lines once: {BEGIN}{END}")
    before, rest = page.split(BEGIN)
    return before + BEGIN + "\n" + text + "\n" + END + rest.split(END)[1]


def main(arguments):
    if arguments not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    differ = 0
    for path, text in ((MEASUREMENTS, measurements()), (DECISIONS, decisions())):
        page = filled(path, text)
        if page == path.read_text():
            continue
        if arguments:
            print(f"{path.relative_to(ROOT)} differs from its data: python3 scripts/tables.py", file=sys.stderr)
            differ = 1
        else:
            path.write_text(page)
            print(f"{path.relative_to(ROOT)} written")
    return differ


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (Wrong, KeyError, ValueError, OSError) as error:
        sys.exit(f"tables: {error!r}" if isinstance(error, KeyError) else f"tables: {error}")
