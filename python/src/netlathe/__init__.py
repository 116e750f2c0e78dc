"""Exactly known traffic on a wire, from Python.

This package starts the program `netlathe` and reads its report. It needs only the standard library.

    import netlathe

    with netlathe.run("scenarios/even-gaps.toml") as r:
        r.wait()
        assert r.report.even.gap.error.p99 < 10e-6

Every command is a function that starts the program and returns a `Run`: `run`, `gen`, `shape`, `emulate`, `limit`,
`measure`, `search`, `disk` and `slice`. Their arguments are the options of the program (`netlathe.describe("shape")`
prints them); `Program` shows how to write them. Wherever the ports of a run are captures, the model line or `null`, time
is virtual: no privileges are needed, and the results are the same on every machine.

A `Report` is the JSON report of the program. Names that end in `_ns` can be written without it and then are seconds:
`report.even.gap.p99`.

A run that does not work raises one of three errors, each with `status`, `message` and `report`:

- `Refused`: the program refused the command or scenario; nothing ran.
- `Failed`: a run ended early or with an error.
- `ExpectationMissed`: a run ended, but an expectation was missed.

`lab()` builds a network of namespaces inside this machine and `lab().box.emulate(...)` runs netlathe in it.
`read_frames` and `write_frames` read and write captures. `netlathe.aio` is the same for asyncio. `pytest` finds the
fixtures of `netlathe.pytest_plugin` by itself.
"""

from netlathe._errors import Error, ExpectationMissed, Failed, Refused
from netlathe._frames import Frame, dataframe, read_frames, write_frames
from netlathe._lab import Lab, Link, Node
from netlathe._program import Program
from netlathe._report import Item, Report
from netlathe._run import Run
from netlathe._scenario import Scenario, to_toml

_here = Program()
run = _here.run
gen = _here.gen
shape = _here.shape
emulate = _here.emulate
limit = _here.limit
measure = _here.measure
search = _here.search
disk = _here.disk
slice = _here.slice
check = _here.check
command = _here.command
describe = _here.describe
lab = Lab

__all__ = [
    "Error",
    "ExpectationMissed",
    "Failed",
    "Frame",
    "Item",
    "Lab",
    "Link",
    "Node",
    "Program",
    "Refused",
    "Report",
    "Run",
    "Scenario",
    "check",
    "command",
    "dataframe",
    "describe",
    "disk",
    "emulate",
    "gen",
    "lab",
    "limit",
    "measure",
    "read_frames",
    "run",
    "search",
    "shape",
    "slice",
    "to_toml",
    "write_frames",
]
