"""The tables and figures of the LightShaper paper again: asked, the paper's, its rivals', ours on the model line and live.

Each experiment prints a table and leaves a JSON file, from which the drawings and the tables of docs/papers/lightshaper.md
are made. Live parts run in labs (`netlathe lab run`), which are taken down however this ends.
"""

import argparse
import importlib
import json
import os
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "scripts"))

import pages
import programs
import results
from inlab import Failed, binary, guarded, run

EXPERIMENTS = ("fig5", "table1", "table2", "fig7", "table3", "table4")
LIVE_S = 300   # time limit for a live part


def module(name):
    return importlib.import_module(name)


def arguments():
    parser = argparse.ArgumentParser(prog="make bench-paper", description=__doc__.split("\n")[0],
                                     epilog="example: python3 bench/paper --only fig5,table2")
    parser.add_argument("--only", metavar="LIST", help=f"only these, of {','.join(EXPERIMENTS)}")
    parser.add_argument("--virtual", action="store_true", help="only what runs in virtual time, on any machine")
    parser.add_argument("--results", metavar="DIR", default=os.path.join(ROOT, "bench", "results"),
                        help="where the JSON files are (default: bench/results)")
    parser.add_argument("--from-results", action="store_true",
                        help="measure nothing: print, draw and write the document from the JSON files")
    parser.add_argument("--keep-docs", action="store_true", help="leave docs/ as it is")
    parser.add_argument("--seconds", type=int, default=programs.seconds, metavar="N",
                        help="how long each program of Tables 3 and 4 runs (default, and the paper: 5)")
    parser.add_argument("--check", action="store_true",
                        help="measure nothing: status 1 if docs/ does not say what the JSON files say")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    given = parser.parse_args()
    given.only = given.only.split(",") if given.only else list(EXPERIMENTS)
    unknown = [name for name in given.only if name not in EXPERIMENTS]
    if unknown:
        parser.error(f"--only: there is no '{unknown[0]}': write some of {','.join(EXPERIMENTS)}")
    return given


def in_lab(name, experiment):
    """Runs the live part of an experiment in its own lab, and returns its results."""
    lab = ["lab", "run", "--name", f"paper-{os.getpid()}", "--clients", experiment.CLIENTS, "--on", "box"]
    inside = [sys.executable, os.path.dirname(os.path.abspath(__file__)), "--inside", name, "--seconds", programs.seconds]
    try:
        found = json.loads(run([binary(), *lab, "--", *inside], wait_s=LIVE_S))
    except Failed as failure:
        raise Failed(f"what runs in a lab: {str(failure).rsplit('bench-paper: ', maxsplit=1)[-1]}") from None
    for command in found.pop("commands"):
        if command not in programs.commands:
            programs.commands.append(command)
    return found


def measured(name, only_virtual):
    """Runs an experiment."""
    experiment = module(name)
    before, begin = results.machine(), time.monotonic()
    programs.commands.clear()
    parts, notes = experiment.virtual(), []
    if only_virtual:
        notes.append("only virtual time was asked for")
    else:
        for live in (experiment.real, lambda: in_lab(name, experiment)):
            try:
                parts |= live()
            except Failed as failure:
                notes.append(f"skipped: {failure}")
    result = experiment.result(**parts)
    result["notes"] += notes
    return results.stamped(result, before, time.monotonic() - begin, only_virtual)


def inside(name):
    """The live part, in the box of a lab."""
    found = module(name).live()
    print(json.dumps({**found, "commands": programs.commands}))


def check(folder):
    """Prints which documents differ from the results."""
    stale = pages.stale(ROOT, folder, EXPERIMENTS)
    for path in stale:
        print(f"bench-paper: {path} is not what {os.path.relpath(folder, ROOT)} says: python3 bench/paper --from-results",
              file=sys.stderr)
    return 1 if stale else 0


def bench(given):
    failed = False
    for name in given.only:
        if given.from_results:
            result = results.load(given.results, name)
        else:
            result = measured(name, given.virtual)
            results.save(given.results, result)
            failed |= any(note.startswith("skipped") for note in result["notes"])
        print(results.printed(result), end="\n\n", flush=True)
    if not given.keep_docs:
        pages.write(ROOT, given.results, EXPERIMENTS)
    return 1 if failed else 0


def experiments(given):
    programs.seconds = given.seconds
    if given.inside:
        programs.work = os.environ["NETLATHE_PAPER_WORK"]
        return inside(given.inside)
    if given.check:
        return check(given.results)
    if given.from_results:
        return bench(given)
    with tempfile.TemporaryDirectory(prefix="netlathe-paper-") as programs.work:
        os.environ.update({"NETLATHE": binary(), "NETLATHE_PAPER_WORK": programs.work})
        return bench(given)


def main():
    given = arguments()
    try:
        return guarded("bench-paper", lambda: experiments(given))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())   # the reader of our output has closed it
        return 0
    except FileNotFoundError as missing:
        print(f"bench-paper: {missing.filename}: {missing.strerror}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
