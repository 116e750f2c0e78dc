"""The same for asyncio.

    import netlathe.aio

    async with netlathe.aio.emulate(between=("eth0", "eth1"), forward="delay 20ms", stats_every="1s") as r:
        await r.ready()
        async for now in r.progress():
            print(now.passed, now.pipelines.forward.out.frames)

The functions are those of `netlathe`. `Run(run)` makes any other run usable with asyncio, such as one in a lab:
`netlathe.aio.Run(lab.box.emulate(...))`. Cancelling a task that waits does not end the run. Leaving its block does.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from types import TracebackType

from netlathe import _run
from netlathe._control import EVENTS, RUN, EventReader, change_of, problem
from netlathe._errors import Error, Refused
from netlathe._program import Program
from netlathe._report import Item, Report
from netlathe._scenario import Scenario

__all__ = ["Run", "disk", "emulate", "gen", "limit", "measure", "run", "search", "shape", "slice"]

_LOOK_S = 0.02
_here = Program()


class Run:
    """A run whose methods are awaited; see `netlathe.Run`."""

    def __init__(self, run: _run.Run) -> None:
        self.sync = run
        """The run itself."""

    async def __aenter__(self) -> Run:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.sync._finished:
            return
        try:
            await self.stop()
        except Error:
            # Show the error of the block, not this one.
            if error is None:
                raise

    def __repr__(self) -> str:
        return repr(self.sync)

    @property
    def running(self) -> bool:
        """Whether the program still runs."""
        return self.sync.running

    @property
    def messages(self) -> str:
        """What the program wrote to stderr so far."""
        return self.sync.messages

    @property
    def report(self) -> Report:
        """The report of a run that has ended. Raises RuntimeError before."""
        if self.sync.running:
            raise RuntimeError("the run has not ended: await wait() or stop() first")
        return self.sync.report

    async def wait(self, timeout: float | None = None) -> Report:
        """Waits for the end of the run and returns its report, as `netlathe.Run.wait`."""
        await self._until_ended(timeout)
        return self.sync.wait()

    async def stop(self, timeout: float = 10.0) -> Report:
        """Ends the run as Ctrl-C does and returns its report, as `netlathe.Run.stop`."""
        if self.sync.running:
            self.sync._interrupt()
            try:
                await self._until_ended(timeout)
            except TimeoutError:
                self.sync._process.kill()
        return self.sync.wait()

    async def ready(self, timeout: float = 30.0) -> Run:
        """Waits until frames pass, as `netlathe.Run.ready`."""
        deadline = asyncio.get_running_loop().time() + timeout
        while not self.sync._look_ready(0):
            if asyncio.get_running_loop().time() > deadline:
                raise TimeoutError(f"{self!r} is not ready after {timeout} s")
            await asyncio.sleep(_LOOK_S)
        return self

    async def progress(self) -> AsyncIterator[Item]:
        """The figures of a live run while it goes on, as `netlathe.Run.progress`."""
        while (items := self.sync._look_progress()) is not None:
            for item in items:
                yield item
            await asyncio.sleep(_LOOK_S)

    async def set(self, path: str | Mapping[str, str], value: str | None = None, *, at: float | None = None) -> Item:
        """Changes a setting of a live run, or several at one instant, as `netlathe.Run.set`."""
        return await self._ask("PATCH", f"{RUN}/settings", change_of(path, value, at))

    async def settings(self) -> dict[str, str]:
        """What can be changed by `set()`: each path and its present value."""
        answer = await self._ask("GET", f"{RUN}/settings")
        return {setting["path"]: setting["value"] for setting in answer["settings"]}

    async def pause(self) -> Item:
        """Pauses departures, as `netlathe.Run.pause`."""
        return await self._ask("POST", f"{RUN}/pause")

    async def resume(self) -> Item:
        """Resumes departures after `pause()`."""
        return await self._ask("POST", f"{RUN}/resume")

    async def events(self) -> AsyncIterator[Item]:
        """The events of a run until it ends, as `netlathe.Run.events`."""
        await self._ask("GET", RUN)
        reader, writer = await asyncio.open_unix_connection(self.sync._controlled().path, limit=1 << 24)
        try:
            writer.write(f"GET {EVENTS} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
            status, *_ = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
            if b" 200 " not in status:
                raise Refused(problem(await reader.read()))
            events = EventReader()
            while line := await reader.readline():
                event = events.line(line.decode())
                if event is not None:
                    yield self.sync._event(*event)
        except (asyncio.IncompleteReadError, ConnectionResetError):
            pass   # the run has ended
        finally:
            writer.close()

    async def _ask(self, method: str, path: str, body: Mapping[str, object] | None = None) -> Item:
        tries = self.sync._controlled().tries(method, path, body)
        # In a thread, because a run that a signal has stopped answers late.
        while (answer := await asyncio.to_thread(next, tries)) is None:
            await asyncio.sleep(_LOOK_S)
        return Item(answer, "", self.sync._reasons)

    async def _until_ended(self, timeout: float | None) -> None:
        deadline = None if timeout is None else asyncio.get_running_loop().time() + timeout
        while self.sync.running:
            if deadline is not None and asyncio.get_running_loop().time() > deadline:
                raise TimeoutError(f"{self!r} still runs after {timeout} s")
            await asyncio.sleep(_LOOK_S)


def run(scenario: Scenario, **options: object) -> Run:
    """Runs a scenario, as `netlathe.run`."""
    return Run(_here.run(scenario, **options))


def gen(**options: object) -> Run:
    """Generates traffic, as `netlathe.gen`."""
    return Run(_here.gen(**options))


def shape(**options: object) -> Run:
    """Sends traffic again with an exact rate or gap, as `netlathe.shape`."""
    return Run(_here.shape(**options))


def emulate(**options: object) -> Run:
    """Impairs traffic, as `netlathe.emulate`."""
    return Run(_here.emulate(**options))


def limit(**options: object) -> Run:
    """Limits each of many users to a rate, as `netlathe.limit`."""
    return Run(_here.limit(**options))


def measure(**options: object) -> Run:
    """Measures what arrives, as `netlathe.measure`."""
    return Run(_here.measure(**options))


def search(**options: object) -> Run:
    """Finds the highest rate without loss, as `netlathe.search`."""
    return Run(_here.search(**options))


def disk(**options: object) -> Run:
    """Mounts a directory as a slow or failing disk, as `netlathe.disk`."""
    return Run(_here.disk(**options))


def slice(*arguments: str, **options: object) -> Run:
    """Shows where a packet's time goes, as `netlathe.slice`."""
    return Run(_here.slice(*arguments, **options))
