"""pytest fixtures for runs, labs and impaired links.

    def test_survives_a_bad_network(netlathe_link):
        link = netlathe_link(forward="delay 20ms loss 1%", backward="delay 20ms")
        link.server.start(["iperf3", "-s", "-1"])
        link.client.call(["iperf3", "-c", link.server.address, "-t", "3"])
        assert link.report.forward.delay.p50 > 0.0199

The failure output of a test has the figures of its runs, the program's messages and the paths of the pages. A test that
needs a lab is skipped, with the reason, where the machine does not permit one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from netlathe import Error, Lab, Link, Program, Refused, Run

_RUNS = pytest.StashKey[list[tuple[str, Path, Run]]]()
_REASON = pytest.StashKey[str]()

# Commands that write a page.
_PAGES = {"run", "gen", "shape", "emulate", "limit", "measure", "search"}


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("netlathe", "exactly known traffic (netlathe)")
    group.addoption(
        "--netlathe",
        metavar="PROGRAM",
        help="the program netlathe [default: $NETLATHE, else the package's own, else that of PATH]",
    )
    group.addoption(
        "--netlathe-reports",
        metavar="DIR",
        default=os.environ.get("NETLATHE_REPORTS"),
        help="keep the reports and pages of all runs in DIR, by test [default: $NETLATHE_REPORTS, else tmp_path]",
    )
    group.addoption(
        "--netlathe-seed",
        metavar="N",
        default=os.environ.get("NETLATHE_SEED"),
        help="seed of runs that do not set one [default: $NETLATHE_SEED, else the scenario's, else 1]",
    )
    group.addoption(
        "--netlathe-require-lab",
        action="store_true",
        default=os.environ.get("NETLATHE_REQUIRE_LAB", "") not in ("", "0"),
        help="fail, not skip, tests that need a lab where there can be none [default: $NETLATHE_REQUIRE_LAB]",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "netlathe_lab(clients, mtu, queues): what the lab of this test has; options of netlathe lab up"
    )


class _Recorder(Program):
    """The program for one test. Its runs write pages and are recorded."""

    def __init__(self, request: pytest.FixtureRequest, cwd: Path) -> None:
        super().__init__(request.config.getoption("--netlathe"), cwd=cwd)
        self._seed = request.config.getoption("--netlathe-seed")
        self._runs = request.node.stash.setdefault(_RUNS, [])
        kept = request.config.getoption("--netlathe-reports")
        name = re.sub(r"[^\w.-]+", "-", request.node.nodeid)
        self._folder = Path(kept).absolute() / name if kept else cwd / "netlathe"
        self._page = self._folder

    def _defaults(self, command: str) -> Mapping[str, object]:
        self._page = self._folder / f"{len(self._runs) + 1}-{command}"
        options: dict[str, object] = {}
        if command in _PAGES:
            self._page.mkdir(parents=True, exist_ok=True)
            options["report"] = self._page
        if command in _PAGES | {"disk"}:
            options["seed"] = self._seed
        return options

    def _started_run(self, run: Run) -> None:
        self._runs.append((self._page.name, self._page / "report.html", run))

    def close(self) -> None:
        for _, _, run in self._runs:
            _end(run)


@pytest.fixture
def netlathe_program(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Program]:
    """The program netlathe in `tmp_path`: a `netlathe.Program`, whose runs are stopped and reported with the test."""
    program = _Recorder(request, tmp_path)
    program.binary  # raises if there is none
    yield program
    program.close()


@pytest.fixture
def netlathe_run(netlathe_program: Program) -> Callable[..., Run]:
    """Runs a scenario: `netlathe_run(scenario, **options)`, as `netlathe.run`, in `tmp_path`."""
    return netlathe_program.run


@pytest.fixture
def netlathe_lab(request: pytest.FixtureRequest, netlathe_program: Program) -> Iterator[Lab]:
    """A lab for this test: a `netlathe.Lab` with the options of `@pytest.mark.netlathe_lab(clients=2)`."""
    reason = _why_no_lab(request.config, netlathe_program)
    if reason:
        if request.config.getoption("--netlathe-require-lab"):
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    marker = request.node.get_closest_marker("netlathe_lab")
    with Lab(program=netlathe_program, **(marker.kwargs if marker else {})) as lab:
        yield lab
        # Runs must end before the lab that they run in.
        for _, _, run in request.node.stash[_RUNS]:
            _end(run)


@pytest.fixture
def netlathe_link(netlathe_lab: Lab) -> Callable[..., Link]:
    """Starts an impaired link: `netlathe_link(forward="delay 20ms", backward="loss 1%")` returns a `netlathe.Link`.

    Its `client` and `server` run your programs. Options are those of `netlathe emulate`.
    """
    return netlathe_lab.link


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, None]:
    report = (yield).get_result()
    runs = item.stash.get(_RUNS, [])
    if call.when == "call" and not report.skipped:
        for name, page, run in runs:
            if report.failed:
                _end(run)
                report.sections.append((f"netlathe {name}", _summary(run, page)))
        if report.failed:
            item.user_properties += [("netlathe_report", str(page)) for _, page, _ in runs if page.exists()]


def _end(run: Run) -> None:
    if not run._finished:
        try:
            run.stop()
        except Error:
            pass  # in the summary


def _summary(run: Run, page: Path) -> str:
    lines = [f"command: {' '.join(run.arguments)}"]
    lines += [f"page: {page}"] if page.exists() else []
    lines += run.messages.splitlines()
    try:
        report = run.report
    except Error as error:
        lines += [] if run.messages else [str(error)]
    else:
        lines += [f"{path} = {value}" for path, value in report.figures().items()]
    return "\n".join(lines)


def _why_no_lab(config: pytest.Config, program: Program) -> str:
    """Returns why this machine permits no lab, or an empty text if it does. Tries once."""
    if _REASON not in config.stash:
        config.stash[_REASON] = ""
        try:
            Lab(program=Program(program.binary)).close()
        except Refused as error:
            config.stash[_REASON] = f"netlathe cannot build a lab here: {error}"
    return config.stash[_REASON]
