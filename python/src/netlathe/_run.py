"""A run of the program."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import tempfile
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from netlathe._control import RUN, Control, change_of
from netlathe._errors import Error, ExpectationMissed, Failed, Refused
from netlathe._report import Item, Report
from netlathe._scenario import Scenario, file_of

if TYPE_CHECKING:
    from netlathe._program import Program

_LOOK_S = 0.05
_PATIENCE_S = 10.0   # time for a run to write its report and restore interfaces after the signal


class Run:
    """A run of the program, which has been started.

    `wait()` waits for its end and returns the report. As a context manager it stops the run at the end of the block:

        with netlathe.emulate(between=("eth0", "eth1"), forward="delay 20ms") as r:
            r.ready()
            ...                       # your test
        print(r.report.forward.delay.p99)
    """

    def __init__(
        self,
        program: Program,
        words: Sequence[str],
        rest: Sequence[str] = (),
        scenario: Scenario | None = None,
        *,
        stats_every: object = None,
        control: object = None,
    ) -> None:
        self._reasons = _reasons_of(program)
        self._folder = self.folder()
        folder = Path(self._folder.name)
        self._error: Error | None = None
        self._report: Report | None = None
        self._finished = False
        self._stats: int | None = None
        self._unread = b""
        self._last_read = False
        words = list(words)
        if stats_every is not None and "--stats" not in words:
            os.mkfifo(folder / "stats")
            self._stats = os.open(folder / "stats", os.O_RDONLY | os.O_NONBLOCK)
            words += ["--stats", str(folder / "stats")]
        self._control: Control | None = None
        if control is not None and control is not False:
            if control is True:
                control = f"unix:{folder / 'control'}"
                words += ["--control", control]
            socket_path = Path(os.fspath(control).removeprefix("unix:"))  # type: ignore[call-overload]
            self._control = Control(Path(program.cwd or ".", socket_path), lambda: self.running)
        if scenario is not None:
            # Positional words come before the options, because the value of some options is optional.
            words.insert(1, file_of(scenario, folder))
        # Bind the socket before the program starts, so that no message is lost.
        self._notices = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._notices.bind(str(folder / "notify"))
        self.is_ready = False
        self.arguments = program.line(*words, *rest)
        self._out, self._err = folder / "stdout", folder / "stderr"
        try:
            with self._out.open("wb") as out, self._err.open("wb") as err:
                self._process = subprocess.Popen(
                    self.arguments,
                    cwd=program.cwd,
                    env={**program.environment(), "NOTIFY_SOCKET": str(folder / "notify")},
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                )
        except OSError as error:
            self._close()
            raise Refused(f"{self.arguments[0]} does not start: {error}", arguments=self.arguments) from error
        self._end = weakref.finalize(self, _end, self._process)

    @staticmethod
    def folder() -> tempfile.TemporaryDirectory[str]:
        """A folder for the files of a run."""
        return tempfile.TemporaryDirectory(prefix="netlathe-", ignore_cleanup_errors=True)

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._finished:
            return
        try:
            self.stop()
        except Error:
            # Show the error of the block, not this one.
            if error is None:
                raise

    def __repr__(self) -> str:
        return f"<Run of {' '.join(self.arguments[:2])}: {'finished' if self._finished else f'process {self.pid}'}>"

    @property
    def pid(self) -> int:
        """The process ID."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the program still runs."""
        return not self._finished and self._process.poll() is None

    @property
    def messages(self) -> str:
        """What the program wrote to stderr so far: notes, warnings and errors."""
        return self._stderr if self._finished else self._err.read_text("utf-8", "replace")

    @property
    def report(self) -> Report:
        """The report. Waits for the end of the run.

        Raises what `wait()` raises, unless you have seen that error already and there is a report.
        """
        if not self._finished:
            return self.wait()
        if self._report is None:
            assert self._error is not None
            raise self._error
        return self._report

    def wait(self, timeout: float | None = None) -> Report:
        """Waits for the end of the run and returns its report. `timeout` is in seconds.

        Raises `Refused`, `Failed` or `ExpectationMissed`; and TimeoutError if the program still runs after `timeout`.
        """
        if not self._finished:
            try:
                self._process.wait(timeout)
            except subprocess.TimeoutExpired:
                raise TimeoutError(f"{self!r} still runs after {timeout} s") from None
            self._finish()
        if self._error is not None:
            raise self._error
        assert self._report is not None
        return self._report

    def stop(self, timeout: float = _PATIENCE_S) -> Report:
        """Ends the run as Ctrl-C does and returns its report. Raises what `wait()` raises.

        If the program does not end within `timeout` seconds, it is killed, which raises `Failed`.
        """
        if not self._finished:
            self._interrupt()
            try:
                self._process.wait(timeout)
            except subprocess.TimeoutExpired:
                self._process.kill()
        return self.wait()

    def ready(self, timeout: float = 30.0) -> Run:
        """Waits until frames pass, or until a disk is mounted. `timeout` is in seconds.

        Raises what `wait()` raises if the run ended before, and TimeoutError. A run in virtual time is ready at its end.
        """
        deadline = time.monotonic() + timeout
        while not self._look_ready(_LOOK_S):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self!r} is not ready after {timeout} s")
        return self

    def progress(self) -> Iterator[Item]:
        """The figures of a live run while it goes on, one `Item` for each interval; the last one has `last`.

        The run must have been started with `stats_every`:

            for now in netlathe.gen(out="eth0", rate="10kpps", duration="10s", stats_every="500ms", ...).progress():
                print(now.passed, now.pipelines[0].out.frames)

        The fields are those of the program's `--stats`. The program never waits for a reader. It leaves out what was not
        read; `skipped` counts that.
        """
        while (items := self._look_progress()) is not None:
            yield from items
            time.sleep(_LOOK_S)

    def set(self, path: str | Mapping[str, str], value: str | None = None, *, at: float | None = None) -> Item:
        """Changes a setting of a live run, or several at one instant. `at` is in seconds since the run began; without it, now.

            with netlathe.run(scenario) as r:
                r.set("down.rate", "20Mbps")
                r.set({"down.delay": "80ms", "down.loss": "1%"}, at=10)

        Returns the `number` of the change and the time `at` for which it is planned. The report has both, and the time at
        which the change took effect. A run that is starting is waited for. Raises `Refused` if a path or value is wrong, or
        if the run has ended; nothing of the change is then done.
        """
        return self._ask("PATCH", f"{RUN}/settings", change_of(path, value, at))

    def settings(self) -> dict[str, str]:
        """What can be changed by `set()`: each path and its present value."""
        return {setting["path"]: setting["value"] for setting in self._ask("GET", f"{RUN}/settings")["settings"]}

    def pause(self) -> Item:
        """Pauses departures, like `set()` of every `paused`."""
        return self._ask("POST", f"{RUN}/pause")

    def resume(self) -> Item:
        """Resumes departures after `pause()`."""
        return self._ask("POST", f"{RUN}/resume")

    def events(self) -> Iterator[Item]:
        """The events of a run until it ends: `state`, `progress`, `change` and `end`.

            for event in r.events():
                if event.event == "change":
                    print(event.data.change.took_effect_at)

        A reader that is too slow loses events. The event `skipped` counts them.
        """
        for kind, data in self._controlled().events():
            yield self._event(kind, data)

    def _event(self, kind: str, data: Mapping[str, object]) -> Item:
        return Item({"event": kind, "data": data}, "", self._reasons)

    def _controlled(self) -> Control:
        if self._control is None:
            raise ValueError(
                "this run takes no changes and has no events, as sweeps, runs with cores or control=False, gen, and programs "
                "without the service: start one run with control=True, such as netlathe.gen(…, control=True)"
            )
        return self._control

    def _ask(self, method: str, path: str, body: Mapping[str, object] | None = None) -> Item:
        return Item(self._controlled().ask(method, path, body), "", self._reasons)

    def _look_ready(self, patience_s: float) -> bool:
        """Waits at most this time. Returns whether the run is ready. Raises what `wait()` raises if the run has ended before."""
        if not self._finished and not self.is_ready:
            ended = self._process.poll() is not None
            if select.select([self._notices], [], [], patience_s)[0]:
                self.is_ready = b"READY=1" in self._notices.recv(4096).split(b"\n")
            elif ended:
                self.wait()
        if self._finished and not self.is_ready:
            self.wait()
            return True
        return self.is_ready

    def _look_progress(self) -> list[Item] | None:
        """Returns the figures that were not read yet, or None after the last ones."""
        if self._stats is None:
            raise ValueError("this run has no progress to read: start it with stats_every, such as stats_every='500ms'")
        if self._last_read:
            return None
        ended = not self.running
        self._unread += _read_all(self._stats)
        *lines, self._unread = self._unread.split(b"\n")
        items = [Item(json.loads(line), "", self._reasons) for line in lines]
        self._last_read = ended or any(item["last"] for item in items)
        return items

    def _interrupt(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)

    def _finish(self) -> None:
        self._finished = True
        status = self._process.returncode
        self._stderr = self._err.read_text("utf-8", "replace")
        message = complaints(self._stderr, self._folder.name)
        kind: type[Error] = Failed
        text = self._out.read_text("utf-8", "replace")
        if text.strip():
            try:
                self._report = Report(json.loads(text), self._reasons)
            except ValueError as error:
                message = f"{message}\nthe report cannot be read: {error}".strip()
        elif status == 2:
            kind = Refused
        if status == 1 and self._report is not None:
            kind = ExpectationMissed
        if status < 0:
            message = f"ended by {signal.Signals(-status).name}\n{message}".strip()
        if status != 0 or self._report is None:
            message = message or f"the program ended with status {status} and without a report"
            self._error = kind(message, status=status, report=self._report, arguments=self.arguments)
        self._close()

    def _close(self) -> None:
        if self._stats is not None:
            # Kept open, because progress may be read after the end of the run.
            weakref.finalize(self, os.close, self._stats)
        self._notices.close()
        self._folder.cleanup()


def _read_all(pipe: int) -> bytes:
    """Returns the contents of a pipe without waiting."""
    chunks = []
    try:
        while chunk := os.read(pipe, 1 << 16):
            chunks.append(chunk)
    except BlockingIOError:
        pass
    return b"".join(chunks)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends the program of a run that was neither waited for nor stopped."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _reasons_of(program: Program) -> Callable[[], frozenset[str]]:
    from netlathe._program import drop_reasons

    binary = program.binary
    return lambda: drop_reasons(binary)


def complaints(stderr: str, folder: str = "") -> str:
    """Returns the program's error lines without its name. Paths in `folder`, which this package made, are shortened to names."""
    lines = [line for line in stderr.splitlines() if not line.startswith(("netlathe: note:", "netlathe: ready"))]
    text = "\n".join(line.removeprefix("netlathe: ") for line in lines)
    return text.replace(f"{folder}/", "") if folder else text
