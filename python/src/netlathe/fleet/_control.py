"""Runs a fleet: places roles, compares clocks, arms, starts at one instant, watches, collects and merges."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from netlathe._errors import Error, Failed, Refused
from netlathe._program import Program
from netlathe._report import Report
from netlathe.fleet import _agent, _task_folder
from netlathe.fleet._agent import State, Task
from netlathe.fleet._engines import Engine, Lost

_NS = 1_000_000_000


@dataclass(frozen=True)
class Role:
    """What some hosts do.

    `command` is the command line of `netlathe` without its name, such as `["gen", "--out", "eth0", …]`. In its words,
    `{host}` is the name of the host and `{index}` counts the hosts of the role from 1; `variables` adds others, by host.
    An empty command is an agent that only keeps time.

    `files` are texts by name, filled like the words, which each host gets into the folder that its command runs in. So a
    role with programs is a scenario with `[[program]]` and the command `["run", "scenario.toml"]`.
    """

    name: str
    hosts: int | Sequence[str]
    """How many hosts of those left, or which."""
    command: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    start_after_s: float = 0.0
    """From the instant of the phase to the start of this role; negative for a receiver that is there before."""
    follows: bool = False
    """It ends once all roles that do not follow have ended, as a receiver does."""


@dataclass(frozen=True)
class Phase:
    """Roles that start at one instant. Hosts are free again in the next phase."""

    name: str
    roles: Sequence[Role]
    duration_s: float
    """How long programs may run from the instant on; after that they are ended."""


@dataclass(frozen=True)
class Scenario:
    """An experiment on many hosts."""

    phases: Sequence[Phase]
    max_clock_error_s: float | None = 100e-6
    """Refuse to start if a clock is not known this well. None: clocks are not compared."""
    clock_s: float = 2.0
    """How long clocks are compared."""
    clock_environment: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By host: variables of all its programs. Tests set clocks off with it."""
    reference: str | None = None
    """`HOST:PORT` where `netlathe clock --answer` runs. None: it is started here."""
    arm_s: float = 60.0
    """How long arming may take."""
    start_in_s: float = 1.0
    """From the last armed program to the start."""
    lease_s: float = 5.0
    """An agent whose lease is not renewed for this time ends its program."""
    on_loss: Literal["end", "go-on"] = "end"
    """What happens to the others when a host is lost."""


@dataclass
class HostResult:
    """What is known about a program on a host."""

    phase: str
    role: str
    host: str
    missing: str | None = None
    """Why there is no report, if so."""
    messages: str = ""
    report: dict[str, Any] | None = None
    clock: dict[str, Any] | None = None
    """The reference's clock minus the host's."""


@dataclass
class FleetResult:
    """The results of a fleet."""

    hosts: list[HostResult]
    merged: dict[tuple[str, str], dict[str, Any]]
    """One report for each phase and role. A role that searches has none: what its hosts found is no sum."""
    took_s: float

    @property
    def missing(self) -> list[HostResult]:
        """Hosts without a report, each with the reason."""
        return [host for host in self.hosts if host.missing is not None]

    @property
    def received(self) -> list[dict[str, Any]]:
        """What receivers with `measure --sources` saw: for each, its role and host, the spread of the sources' first frames in
        `spread_ns`, and their crests."""
        return _received(self.hosts)

    def report(self, role: str, phase: str | None = None) -> Report:
        """The merged report of a role, in a phase or in the only one that has it."""
        found = [merged for (of, name), merged in self.merged.items() if name == role and phase in (None, of)]
        if len(found) != 1:
            known = ", ".join(f"{name} in {of}" for of, name in self.merged)
            raise KeyError(f"{role}: name one of the reports: {known}")
        return Report(found[0], lambda: frozenset())


Progress = Callable[[str, Mapping[str, int]], None]


def on_terminal(phase: str, states: Mapping[str, int]) -> None:
    """Shows the states of all hosts in one line of a terminal."""
    if sys.stderr.isatty():
        text = ", ".join(f"{count} {state}" for state, count in states.items())
        print(f"\r\x1b[K{phase}: {text}", end="", file=sys.stderr, flush=True)


def run(
    scenario: Scenario,
    engine: Engine,
    *,
    folder: str | os.PathLike[str] | None = None,
    progress: Progress = on_terminal,
    program: Program | None = None,
) -> FleetResult:
    """Runs a scenario on the hosts of an engine. `folder` keeps the report of each host and the merged ones.

    Raises `Refused` if it cannot start: too few hosts, a clock that is off, a program that is not armed. A host that is
    lost later is in `missing` of the result. Ctrl-C ends all programs before it is raised.
    """
    began = time.monotonic()
    program = program or Program()
    hosts = engine.hosts()
    placed = [(phase, list(_place(phase, hosts))) for phase in scenario.phases]
    with contextlib.ExitStack() as stack:
        used = sorted({host for _, tasks in placed for host, _ in tasks})
        clocks: dict[str, dict[str, Any]] = {}
        if scenario.max_clock_error_s is not None:
            reference = scenario.reference or stack.enter_context(_answering(program, engine.address()))
            clocks = _compare(scenario, engine, used, reference)
        results: list[HostResult] = []
        for phase, tasks in placed:
            control = _Control(scenario, engine, phase, tasks, clocks, progress)
            results += control.carry_out()
            if scenario.on_loss == "end" and any(result.missing for result in results):
                break
    merged = _merge(program, results, Path(folder) if folder is not None else None)
    return FleetResult(results, merged, time.monotonic() - began)


def _place(phase: Phase, hosts: Sequence[str]) -> Iterator[tuple[str, Role]]:
    """Assigns hosts to each role: first to roles that name hosts, then to roles that count them, in order."""
    free = list(hosts)
    for role in phase.roles:
        for host in role.hosts if not isinstance(role.hosts, int) else ():
            if host not in free:
                raise Refused(f"phase {phase.name}, role {role.name}: there is no free host {host}: {_names(hosts)}")
            free.remove(host)
            yield host, role
    for role in phase.roles:
        if isinstance(role.hosts, int):
            if role.hosts > len(free):
                raise Refused(
                    f"phase {phase.name}, role {role.name}: it needs {role.hosts} hosts and {len(free)} of {len(hosts)} "
                    "are free: start more workers, or ask for fewer"
                )
            for host in free[: role.hosts]:
                yield host, role
            del free[: role.hosts]


def _names(hosts: Sequence[str]) -> str:
    shown = ", ".join(hosts[:8])
    return f"the engine has {shown}{' …' if len(hosts) > 8 else ''}" if hosts else "the engine has no hosts"


@contextlib.contextmanager
def _answering(program: Program, address: str) -> Iterator[str]:
    """Runs the reference clock on this host, and yields its address."""
    with socket.socket(socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("", 0))
        port = free.getsockname()[1]
    listen = f"[::]:{port}" if socket.has_dualstack_ipv6() else f"0.0.0.0:{port}"
    with _task_folder.made() as (folder, in_use):
        line = program.line("clock", "--answer", "--listen", listen)
        # No lease: the clock ends with this process, even if the process is killed.
        warden = _agent.start_warden(line, (folder, in_use), (math.inf, math.inf), program.environment())
        assert warden.stdin
        try:
            while "answers on" not in (said := _task_folder.read(folder / "stderr")):
                if (folder / _task_folder.STATUS).exists() or warden.poll() is not None:
                    raise Refused(f"the reference clock does not answer: {said.strip()}")
                time.sleep(0.02)
            yield f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
        finally:
            warden.stdin.close()
            warden.wait()


def _compare(scenario: Scenario, engine: Engine, hosts: Sequence[str], reference: str) -> dict[str, dict[str, Any]]:
    environment = {host: tuple(scenario.clock_environment.get(host, {}).items()) for host in hosts}
    calls = [(host, _agent.compare_clock, (reference, environment[host], scenario.clock_s)) for host in hosts]
    found = engine.call(calls, scenario.clock_s + scenario.arm_s)
    assert scenario.max_clock_error_s is not None
    most_ns = scenario.max_clock_error_s * 1e9
    problems = []
    for host, clock in zip(hosts, found):
        if isinstance(clock, BaseException):
            problems.append(f"{host}: its clock is not known: {clock}")
        elif clock["error_ns"] > most_ns:
            problems.append(
                f"{host}: its clock is known to ±{clock['error_ns'] / 1e3:.1f} us, and max_clock_error_s is {most_ns / 1e3:.1f} us"
            )
    if problems:
        raise Refused("\n".join(problems))
    return dict(zip(hosts, found))


class _Control:
    """A phase, from arming to the last report."""

    _numbers = itertools.count(1)

    def __init__(
        self,
        scenario: Scenario,
        engine: Engine,
        phase: Phase,
        placed: Sequence[tuple[str, Role]],
        clocks: Mapping[str, dict[str, Any]],
        progress: Progress,
    ) -> None:
        self.scenario, self.engine, self.phase, self.progress = scenario, engine, phase, progress
        self.tasks: list[Task] = []
        self.results: dict[str, HostResult] = {}
        self.states: dict[str, State] = {}
        self.roles: dict[str, Role] = {}
        self.answered: dict[str, float] = {}
        indices: dict[str, int] = {}
        for host, role in placed:
            index = indices[role.name] = indices.get(role.name, 0) + 1
            values = {"host": host, "index": str(index), "role": role.name, **role.variables.get(host, {})}
            number = f"{os.getpid()}-{next(self._numbers)}-{host}"
            environment = {**scenario.clock_environment.get(host, {}), **role.environment}
            task = Task(
                number,
                host,
                role.name,
                tuple(_filled(word, values) for word in role.command),
                tuple(environment.items()),
                scenario.lease_s,
                scenario.arm_s,
                phase.duration_s,
                tuple((name, _filled(text, values)) for name, text in role.files.items()),
            )
            for name in role.files:
                if not name or "/" in name or name in (".", ".."):
                    raise Refused(f"role {role.name}: '{name}' is no name of a file: write one without a folder")
            self.roles[number] = role
            self.tasks.append(task)
            self.results[number] = HostResult(phase.name, role.name, host, clock=clocks.get(host))

    def carry_out(self) -> list[HostResult]:
        try:
            self._arm()
            self._start()
            self._watch()
        finally:
            self._end()
        return list(self.results.values())

    def _each(
        self,
        function: Callable[..., Any],
        tasks: Sequence[Task],
        arguments: Callable[[Task], tuple[Any, ...]],
        patience_s: float,
        allowed_s: float = 0.0,
    ) -> None:
        """Calls a function for each task, and stores the returned states. A host that does not answer counts as lost, unless its
        last answer is less than `allowed_s` ago."""
        answers = self.engine.call([(task.host, function, arguments(task)) for task in tasks], patience_s)
        now = time.monotonic()
        for task, answer in zip(tasks, answers):
            if isinstance(answer, State):
                self.states[task.number] = answer
                self.answered[task.number] = now
            elif isinstance(answer, Lost) and now - self.answered.get(task.number, -1e9) < allowed_s:
                continue
            else:
                why = "it was lost" if isinstance(answer, Lost) else "its agent failed"
                self.results[task.number].missing = f"{why}: {answer}"
        states: dict[str, int] = {}
        for task in self.tasks:
            state = "missing" if self.results[task.number].missing else self.states[task.number].phase
            states[state] = states.get(state, 0) + 1
        self.progress(self.phase.name, states)

    def _alive(self, *phases: str) -> list[Task]:
        """Returns the tasks whose last known state is one of these phases."""
        known = [task for task in self.tasks if self.results[task.number].missing is None]
        return [task for task in known if not phases or self.states[task.number].phase in phases]

    def _look(self, tasks: Sequence[Task]) -> None:
        # One silent host must not prevent the leases of the others from being renewed.
        lease_s = self.scenario.lease_s
        self._each(_agent.look, tasks, lambda task: (task.number,), lease_s / 4, lease_s)

    def _arm(self) -> None:
        self._each(_agent.arm, self.tasks, lambda task: (task,), self.scenario.arm_s)
        end = time.monotonic() + self.scenario.arm_s
        while self._alive("arming") and time.monotonic() < end:
            time.sleep(0.1)
            self._look(self._alive())
        problems = []
        for task in self.tasks:
            why = self.results[task.number].missing
            state = self.states.get(task.number)
            if why is None and state and state.phase != "armed":
                why = state.messages.strip() or f"it is not armed after {self.scenario.arm_s:g} s"
            if why is not None:
                problems.append(f"{task.host}, role {task.role}: {why}")
        if problems:
            raise Refused("\n".join(problems))

    def _start(self) -> None:
        # start_in_s is the time from the arming of the last program to the first start of any role.
        ahead_s = self.scenario.start_in_s - min([0.0, *(role.start_after_s for role in self.phase.roles)])
        begun_ns = time.time_ns()
        instant_ns = begun_ns + int(ahead_s * _NS)
        first_ns = begun_ns + int(self.scenario.start_in_s * _NS)

        def by_host(task: Task) -> tuple[Any, ...]:
            clock = self.results[task.number].clock
            own_ns = instant_ns + round(self.roles[task.number].start_after_s * _NS)
            return task.number, own_ns - round(clock["offset_ns"]) if clock else own_ns

        self._each(_agent.go, self.tasks, by_host, self.scenario.lease_s / 2, self.scenario.lease_s)
        # If a host is silent, the wait for its answer may last beyond the instant, which the others already have.
        if time.time_ns() > first_ns and len(self._alive("running", "ended")) == len(self.tasks):
            raise Refused(
                f"phase {self.phase.name}: the start reached all hosts after the instant: give a larger start_in_s than "
                f"{self.scenario.start_in_s:g}"
            )
        self._end_at = time.monotonic() + (instant_ns - time.time_ns()) / _NS + self.phase.duration_s

    def _watch(self) -> None:
        leads = any(not role.follows for role in self.phase.roles)
        looked_s = 0.0
        # A task that is still armed got the instant, but its answer was lost.
        while running := self._alive("running", "armed"):
            if self.scenario.on_loss == "end" and len(self._alive()) < len(self.tasks):
                break
            if time.monotonic() > self._end_at:
                break
            if leads and all(self.roles[task.number].follows for task in running):
                break
            pause = min(self.scenario.lease_s / 4, 0.5, max(0.05, self._end_at - time.monotonic()))
            # If a host was silent, waiting for its answer has used up the time, so renew the leases of the others first.
            time.sleep(max(0.0, pause - looked_s))
            begun = time.monotonic()
            self._look(running)
            looked_s = time.monotonic() - begun

    def _end(self) -> None:
        """Ends what still runs, and collects the reports."""
        patience_s = self.scenario.lease_s / 2
        alive = self._alive()
        # Ctrl-C may have arrived before the answer to arming.
        running = [task for task in alive if task.number in self.states and self.states[task.number].phase != "ended"]
        begun = time.monotonic()
        end = begun + 15
        while (waiting := [task for task in running if task in self._alive() and self.states[task.number].phase != "ended"]) and (
            time.monotonic() < end
        ):
            # A host that did not answer may be busy or may not have received the call. Ask it again within its lease.
            silent = [task for task in waiting if self.answered.get(task.number, 0.0) < begun]
            if silent:
                self._each(_agent.stop, silent, lambda task: (task.number,), patience_s, self.scenario.lease_s)
            else:
                time.sleep(0.1)
                self._look(waiting)
        for task in self.tasks:
            result, state = self.results[task.number], self.states.get(task.number)
            result.messages = state.messages if state else ""
            if result.missing is not None:
                continue
            try:
                result.report = json.loads(state.report) if state and state.report.strip() else None
            except ValueError as error:
                result.missing = f"its report cannot be read: {error}"
            if result.report is None and result.missing is None:
                why = (state.messages.strip() if state else "") or "its program did not end"
                result.missing = f"no report: {why}"
        self.engine.call([(task.host, _agent.forget, (task.number,)) for task in alive], 20)


def _filled(word: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        word = word.replace("{" + name + "}", value)
    return word


def _received(results: Iterable[HostResult]) -> list[dict[str, Any]]:
    """Returns what each receiver with `measure --sources` saw of the sources, by its stamps."""
    return [
        {"role": result.role, "host": result.host, **pipeline["arrivals"], "crest_gap": pipeline.get("crest_gap")}
        for result in results
        for pipeline in (result.report or {}).get("pipelines", [])
        if "arrivals" in pipeline
    ]


def _merge(program: Program, results: Sequence[HostResult], folder: Path | None) -> dict[tuple[str, str], dict[str, Any]]:
    """Merges the reports of each phase and role, by `netlathe merge`."""
    merged: dict[tuple[str, str], dict[str, Any]] = {}
    with _task_folder.made() as (scratch, _):
        base = folder or scratch
        for key in dict.fromkeys((result.phase, result.role) for result in results):
            own = [result for result in results if (result.phase, result.role) == key and result.report is not None]
            if not own:
                continue
            place = base / key[0] / key[1]
            place.mkdir(parents=True, exist_ok=True)
            searches = [result for result in own if result.report and result.report["command"] == "search"]
            words = ["merge", "--json"]
            if folder:
                words += ["--page", str(place / "merged.html")]
            for result in own:
                path = place / f"{result.host.replace('/', '_')}.json"
                path.write_text(json.dumps(result.report))
                words.append(f"{result.host}={path}")
            if searches:
                continue
            for result in own:
                if result.clock:
                    words += ["--offset", f"{result.host}={result.clock['offset_ns'] / 1e3:.3f}us"]
            done = subprocess.run(program.line(*words), env=program.environment(), capture_output=True, text=True)
            if done.returncode != 0:
                raise Failed(f"the reports of role {key[1]} are not merged: {done.stderr.strip()}", status=done.returncode)
            report: dict[str, Any] = json.loads(done.stdout)
            missing = [{"host": one.host, "why": one.missing} for one in results if (one.phase, one.role) == key and one.missing]
            if missing:
                report["merged"]["missing"] = missing
            received = _received(result for result in results if result.phase == key[0])
            if received:
                report["merged"]["received"] = received
            (place / "merged.json").write_text(json.dumps(report))
            merged[key] = report
    return merged


__all__ = ["Error", "FleetResult", "HostResult", "Phase", "Role", "Scenario", "on_terminal", "run"]
