"""Labs: networks of namespaces inside this machine."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any

from netlathe._errors import Failed, Refused
from netlathe._program import Program, option_words
from netlathe._report import Report
from netlathe._run import Run, complaints

_numbers = count(1)
_PATIENCE_S = 15.0


class Node(Program):
    """A node of a lab. Its functions are those of `Program`: `lab.box.emulate(...)` runs netlathe there."""

    def __init__(self, lab: Lab, name: str) -> None:
        super().__init__(lab._program._binary, cwd=lab._program.cwd, env={**lab._program.env, "NETLATHE_LAB": lab.name})
        self.lab = lab
        self.name = name

    def __repr__(self) -> str:
        return f"<Node {self.name} of lab {self.lab.name}>"

    @property
    def address(self) -> str:
        """The IPv4 address of a client or the server."""
        return self._variable("")

    @property
    def address6(self) -> str:
        """The IPv6 address of a client or the server."""
        return self._variable("_V6")

    @property
    def mac(self) -> str:
        """The hardware address of a client or the server."""
        return self._variable("_MAC")

    def line(self, *arguments: str) -> list[str]:
        return self.enter([self.binary, *arguments])

    def enter(
        self, arguments: Sequence[str | os.PathLike[str]], cwd: str | os.PathLike[str] | None = None
    ) -> list[str]:
        """The command line that runs a program in this node, in the folder `cwd` or that of the lab's program."""
        words = [os.fspath(word) for word in arguments]
        way = list(self.lab._enter)
        if way:
            # A process that enters a mount namespace starts in its root directory.
            way += ["env", f"--chdir={os.path.abspath(cwd or self.cwd or os.getcwd())}"]
        return [*way, self.binary, "lab", "run", "--name", self.lab.name, "--on", self.name, "--", *words]

    def call(self, arguments: Sequence[str | os.PathLike[str]], **options: Any) -> subprocess.CompletedProcess[str]:
        """Runs a program here to its end, as `subprocess.run(…, text=True, capture_output=True, check=True)`.

            lab.client.call(["ping", "-c", "3", lab.server.address]).stdout

        `options` are those of `subprocess.run`.
        """
        options = {"text": True, "capture_output": True, "check": True, "cwd": self.cwd, **options}
        options["env"] = {**(options.get("env") or os.environ), **self.env}
        result: subprocess.CompletedProcess[str] = subprocess.run(
            self.enter(arguments, options["cwd"]), **options
        )
        return result

    def start(self, arguments: Sequence[str | os.PathLike[str]], **options: Any) -> subprocess.Popen[Any]:
        """Starts a program in this node, which ends with the lab. `options` are those of `subprocess.Popen`."""
        options = {"cwd": self.cwd, **options}
        options["env"] = {**(options.get("env") or os.environ), **self.env}
        process = subprocess.Popen(self.enter(arguments, options["cwd"]), **options)
        self.lab._started.append(process)
        return process

    def _defaults(self, command: str) -> Mapping[str, object]:
        return self.lab._program._defaults(command)

    def _started_run(self, run: Run) -> None:
        self.lab._program._started_run(run)

    def _variable(self, suffix: str) -> str:
        # `client` and `client1` are the same node, which the program calls CLIENT.
        node = "client" if self.name == "client1" else self.name
        try:
            return self.lab.variables[f"NETLATHE_{node.upper()}{suffix}"]
        except KeyError:
            raise AttributeError(f"{self.name} has no address: only clients and the server have one") from None


class Lab:
    """A network inside this machine: clients, a box in the middle, and a server, each in a network namespace.

        with netlathe.lab(clients=2) as lab:
            with lab.link(forward="delay 20ms"):
                print(lab.client.call(["ping", "-c", "3", lab.server.address]).stdout)

    The box forwards nothing by itself: `link`, or a run between its interfaces `c0` (to the clients) and `s0` (to the
    server), does. The lab is there until the end of the block, `close()`, or the end of Python. It needs root, or user
    namespaces for ordinary users. Raises `Refused` with the reason if the machine does not permit it.

    Options are those of `netlathe lab up`: `clients`, `mtu`, `queues`.
    """

    def __init__(self, name: str | None = None, *, program: Program | None = None, **options: object) -> None:
        self.name = name or f"py{os.getpid()}-{next(_numbers)}"
        self._program = program or Program()
        self._started: list[subprocess.Popen[Any]] = []
        binary = self._program.binary
        # The lab exists as long as a program in it that waits for the end of its stdin, so the lab cannot outlive Python.
        script = "env; echo; exec cat"
        line = [binary, "lab", "run", "--name", self.name, *option_words(options), "--on", "box", "--", "sh", "-c", script]
        with Run.folder() as folder:
            errors = os.path.join(folder, "stderr")
            with open(errors, "wb") as err:
                try:
                    self._holder = subprocess.Popen(
                        line,
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        stderr=err,
                        env=self._program.environment(),
                        # Ctrl-C must reach only Python, which ends the programs in the lab before it closes the lab.
                        start_new_session=True,
                    )
                except OSError as error:
                    raise Refused(f"{binary} does not start: {error}", arguments=line) from error
            assert self._holder.stdout
            self.variables: dict[str, str] = {}
            """The variables of programs in the lab: `NETLATHE_SERVER` and others, as `docs/guide/lab.md` lists them."""
            complete = False
            for entry in iter(self._holder.stdout.readline, b""):
                if entry == b"\n":
                    complete = True
                    break
                name_, _, value = entry.decode(errors="replace").rstrip("\n").partition("=")
                if name_.startswith("NETLATHE_"):
                    self.variables[name_] = value
            if not complete:
                status = self._holder.wait()
                for pipe in (self._holder.stdin, self._holder.stdout):
                    if pipe:
                        pipe.close()
                message = Path(errors).read_text("utf-8", "replace")
                raise Refused(complaints(message), status=status, arguments=line)
        self._enter: list[str] = []
        if os.geteuid() != 0:
            # The lab of an ordinary user is in a user namespace, which is entered by the holder's process.
            self._enter = ["nsenter", f"--target={self._holder.pid}", "--user", "--mount", "--net", "--preserve-credentials"]
        clients = options.get("clients") or 1
        self.clients = [Node(self, f"client{i + 1}") for i in range(int(str(clients)))]
        """The clients, in order."""
        self.client = self.clients[0]
        """The first client."""
        self.box = Node(self, "box")
        """The node in the middle, with the interfaces `c0` and `s0`."""
        self.server = Node(self, "server")
        """The server."""

    def __enter__(self) -> Lab:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except Failed:
            # Show the error of the block, not this one.
            if error is None:
                raise

    def __repr__(self) -> str:
        return f"<Lab {self.name}: {len(self.clients)} clients, box, server>"

    def link(self, **options: object) -> Link:
        """Starts `netlathe emulate` between the clients and the server, and waits until it passes frames.

        `forward` impairs what the clients send, `backward` what the server sends, `both` each; all options of `emulate`
        are allowed. Without an impairment, frames pass unchanged.
        """
        return Link(self, **options)

    def close(self) -> None:
        """Ends programs that `Node.start` started, and takes the lab down."""
        for process in self._started:
            if process.poll() is None:
                process.terminate()
        for process in self._started:
            try:
                process.wait(2)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._started.clear()
        if self._holder.stdin and not self._holder.stdin.closed:
            self._holder.stdin.close()
            try:
                status = self._holder.wait(_PATIENCE_S)
            except subprocess.TimeoutExpired:
                self._holder.send_signal(signal.SIGTERM)
                status = self._holder.wait()
            if self._holder.stdout:
                self._holder.stdout.close()
            if status != 0:
                raise Failed(f"lab {self.name} was not taken down cleanly: netlathe lab down {self.name}", status=status)


class Link:
    """An impaired link between the clients and the server of a lab: the run that carries the frames.

    `client` and `server` are the nodes, `run` is the run, `report` its report once it has been stopped.
    """

    def __init__(self, lab: Lab, **options: object) -> None:
        self.lab = lab
        self.client = lab.client
        self.server = lab.server
        if not any(options.get(name) for name in ("forward", "backward", "both", "replay")):
            options["both"] = "delay 0ms"
        self.run: Run = lab.box.emulate(between=("c0", "s0"), **options)
        try:
            self.run.ready()
        except BaseException:
            self.run.__exit__(None, TimeoutError(), None)
            raise

    def __enter__(self) -> Link:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.run.__exit__(kind, error, trace)

    @property
    def report(self) -> Report:
        """The report. Stops the run if it still runs."""
        if self.run.running:
            self.run.stop()
        return self.run.report
