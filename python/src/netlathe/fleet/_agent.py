"""The agent on each host: starts programs armed, passes the instant of the start on, and returns their reports.

The functions here are called on a host by an engine, one short call at a time. State between calls is kept in
this module, by task number.
"""

from __future__ import annotations

import heapq
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from netlathe.fleet import _task_folder
from netlathe.fleet._task_folder import LEASE_ENDED, STATUS, read

_NS = 1_000_000_000


@dataclass(frozen=True)
class Task:
    """A program on a host."""

    number: str
    """Unique in the fleet."""
    host: str
    role: str
    arguments: tuple[str, ...]
    """Of `netlathe`; empty for an agent that only keeps time."""
    environment: tuple[tuple[str, str], ...] = ()
    lease_s: float = 5.0
    arm_s: float = 60.0
    """The lease until it is first renewed: other hosts may take this long to be armed."""
    duration_s: float = 0.0
    """Of an agent that only keeps time."""
    files: tuple[tuple[str, str], ...] = ()
    """Names and texts: written to the folder that the program runs in."""


@dataclass
class State:
    """The state of a task, as its agent reports it."""

    number: str
    phase: str
    """`arming`, `armed`, `running` or `ended`."""
    status: int | None = None
    messages: str = ""
    report: str = ""
    """JSON, once it has ended."""


@dataclass
class _Running:
    task: Task
    started: bool = False
    process: subprocess.Popen[bytes] | None = None
    folder: Path | None = None
    in_use: int | None = None
    """The descriptor of the folder. The warden has a copy."""
    asked_ns: int = 0
    obtained_ns: int = 0
    ended: bool = False
    renewed: float = field(default_factory=time.monotonic)


_tasks: dict[str, _Running] = {}
_forgotten: set[str] = set()
"""Tasks that were forgotten before they were armed: the calls of a controller that is interrupted may overtake each other."""
_lock = threading.RLock()


class _Timekeeper:
    """Records the time at requested instants, for any number of agents, on one thread."""

    def __init__(self) -> None:
        self._due: list[tuple[int, str]] = []
        self._wake = threading.Condition()
        self._thread: threading.Thread | None = None

    def at(self, instant_ns: int, number: str) -> None:
        with self._wake:
            heapq.heappush(self._due, (instant_ns, number))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, daemon=True)
                self._thread.start()
            self._wake.notify()

    def _run(self) -> None:
        while True:
            with self._wake:
                while not self._due:
                    self._wake.wait()
                left_ns = self._due[0][0] - time.time_ns()
                if left_ns > 0:
                    self._wake.wait(left_ns / _NS)
                    continue
                _, number = heapq.heappop(self._due)
            running = _tasks.get(number)
            if running is not None:
                running.obtained_ns = time.time_ns()


_timekeeper = _Timekeeper()


def program() -> str:
    """The program on this host."""
    from netlathe._program import Program

    return Program().binary


def compare_clock(reference: str, environment: tuple[tuple[str, str], ...], duration_s: float) -> dict[str, Any]:
    """Returns the offset of the reference clock from this host's, as in `netlathe clock --json`."""
    line = [program(), "clock", "--peer", reference, "--duration", f"{duration_s}s", "--progress", "never", "--json"]
    done = subprocess.run(
        line, env={**os.environ, **dict(environment)}, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip() or f"netlathe clock ended with status {done.returncode}")
    found = json.loads(done.stdout)
    peer: dict[str, Any] = {**found["peers"][0], "services": found["services"]}
    return peer


def arm(task: Task) -> State:
    """Starts the program of a task, which opens its ports and waits for the instant."""
    running = _Running(task)
    if task.arguments:
        own = [program(), *task.arguments, "--start-at", "stdin", "--json"]
        # A search has no --histograms.
        own += [] if task.arguments[0] == "search" else ["--histograms"]
        running.folder, running.in_use = _task_folder.make()
        try:
            here = running.folder / "files"
            here.mkdir()
            for name, text in task.files:
                (here / name).write_text(text)
            running.process = start_warden(
                own,
                (running.folder, running.in_use),
                (max(task.arm_s, task.lease_s), task.lease_s),
                {**os.environ, **dict(task.environment)},
                # Paths on the command line are relative to the agent's folder, unless the task has files.
                here if task.files else None,
            )
        except BaseException:
            _task_folder.remove(running.folder, running.in_use)
            raise
    with _lock:
        _tasks[task.number] = running
        is_late = task.number in _forgotten
    if is_late:
        forget(task.number)
        raise RuntimeError("its controller was interrupted before it was armed")
    return look(task.number)


def start_warden(
    program_line: Sequence[str],
    folder: tuple[Path, int],
    leases_s: tuple[float, float],
    environment: Mapping[str, str],
    cwd: Path | None = None,
) -> subprocess.Popen[bytes]:
    """Starts a program with a warden, which ends the program when this process is gone."""
    path, in_use = folder
    warden = [sys.executable, "-m", "netlathe.fleet._warden", *map(str, leases_s), str(path), "--"]
    # The package may not be installed but only be on the path of this process.
    paths = [str(Path(__file__).parents[2]), environment.get("PYTHONPATH", "")]
    return subprocess.Popen(
        [*warden, *program_line],
        stdin=subprocess.PIPE,
        env={**environment, "PYTHONPATH": os.pathsep.join(part for part in paths if part)},
        cwd=cwd,
        start_new_session=True,
        pass_fds=[in_use],
    )


def go(number: str, instant_ns: int) -> State:
    """Passes the start instant on. It is UNIX time in ns by the clock of this host."""
    with _lock:
        running = _tasks[number]
        running.asked_ns = instant_ns
        running.started = True
    if running.process is None:
        _timekeeper.at(instant_ns, number)
    else:
        _tell(running, f"start {rfc3339(instant_ns)}")
    return look(number)


def look(number: str) -> State:
    """Renews the lease of a task, and returns its state."""
    running = _tasks[number]
    running.renewed = time.monotonic()
    if running.process is None:
        return _of_timekeeper(running)
    _tell(running, "renew")
    assert running.folder
    gone = running.process.poll()
    if gone is not None:
        running.ended = True
        why = "ended, since no controller renewed the lease" if gone == LEASE_ENDED else "its warden was killed"
        return State(number, "ended", gone, why)
    status = read(running.folder / STATUS)
    messages = read(running.folder / "stderr")
    if not status:
        armed = "netlathe: armed" in messages
        phase = "running" if running.started else "armed" if armed else "arming"
        return State(number, phase, messages=messages)
    running.ended = True
    return State(number, "ended", int(status), messages, read(running.folder / "stdout"))


def stop(number: str) -> State:
    """Ends a task, as Ctrl-C does. Repeated calls do nothing more."""
    running = _tasks[number]
    asked, running.ended = running.ended, True
    if running.process is not None and not asked:
        _tell(running, "stop")
    return look(number)


def forget(number: str) -> None:
    """Removes what is left of a task. Ends the task if it still runs."""
    with _lock:
        running = _tasks.pop(number, None)
        if running is None:
            _forgotten.add(number)
        else:
            _forgotten.discard(number)
    if running is None or running.process is None:
        return
    if running.process.stdin:
        try:
            running.process.stdin.close()
        except BrokenPipeError:
            pass
    # The warden ends its program within this time.
    try:
        running.process.wait(15)
    except subprocess.TimeoutExpired:
        running.process.kill()
        running.process.wait()
    if running.folder and running.in_use is not None:
        _task_folder.remove(running.folder, running.in_use)


def rfc3339(unix_ns: int) -> str:
    """Formats an instant for `--start-at`."""
    seconds, fraction = divmod(unix_ns, _NS)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{fraction:09}Z"


def _tell(running: _Running, line: str) -> None:
    assert running.process and running.process.stdin
    try:
        running.process.stdin.write(f"{line}\n".encode())
        running.process.stdin.flush()
    except (BrokenPipeError, ValueError):
        # The warden has ended, which its status shows.
        pass


def _of_timekeeper(running: _Running) -> State:
    task = running.task
    if not running.started:
        return State(task.number, "ended" if running.ended else "armed")
    over = running.obtained_ns and time.time_ns() >= running.asked_ns + int(task.duration_s * _NS)
    if not (over or running.ended):
        return State(task.number, "running")
    running.ended = True
    miss_ns = running.obtained_ns - running.asked_ns
    start = {"asked_unix_ns": running.asked_ns, "obtained_unix_ns": running.obtained_ns, "miss_ns": miss_ns}
    lateness = {"p50_ns": float(miss_ns), "max_ns": float(miss_ns), "histogram": [[float(miss_ns), 1]]}
    pipeline = {
        "name": task.role,
        "start": start,
        "in": {"frames": 1, "bytes": 0},
        "out": {"frames": 1, "bytes": 0},
        "copies": 0,
        "drops": {},
        "held": 0,
        "lateness": lateness,
        "histograms": {"lateness_ps": [[miss_ns * 1000, 1]]},
    }
    report = {"schema": 2, "command": "gen", "pipelines": [pipeline], "caveats": []}
    return State(task.number, "ended", 0, "", json.dumps(report))
