"""The program: where it is, where it runs, and its commands."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from netlathe._errors import Error, Failed, Refused
from netlathe._run import Run, complaints
from netlathe._scenario import Scenario, file_of, is_sweep

_OWN = Path(__file__).parent / "bin" / "netlathe"
_CONTROLLED = {"run", "shape", "emulate", "limit"}


class Program:
    """The program netlathe, and where it runs.

    `binary` is its path. Without one it is the variable `NETLATHE`, else the copy that the installed package carries,
    else `netlathe` of PATH. `cwd` is the folder in which it runs: file names in options and scenarios are relative to it.
    `env` adds to the environment.

    The functions of the module are those of `Program()`. Options are keyword arguments:

    | Python                                 | command line                               |
    |----------------------------------------|--------------------------------------------|
    | `gap="fixed 10us"`, `count=1000`       | `--gap 'fixed 10us' --count 1000`          |
    | `catch_up="none"`, `in_="eth0"`        | `--catch-up none --in eth0`                |
    | `one_way=True`; `False` and `None`     | `--one-way`; nothing                       |
    | `control=True`                         | `--control` with a socket of the run's own |
    | `control=False`                        | no such socket                             |
    | `stream=["udp …", "tcp …"]`            | `--stream 'udp …' --stream 'tcp …'`        |
    | `between=("eth0", "eth1")`             | `--between eth0 eth1`                      |
    | `rate={"api": "5Mbps", "": "1Gbps"}`   | `--rate api=5Mbps --rate 1Gbps`            |

    The program checks them. A value keeps its unit, as a text.

    Runs of `run`, `shape`, `emulate` and `limit` have a control socket in a private folder, for `Run.set()` and
    `Run.events()`, unless they are a sweep or have `cores`. A live run with such a socket sends less than `control=False` at
    full speed; `gen` has one if you write `control=True`.
    """

    def __init__(
        self,
        binary: str | os.PathLike[str] | None = None,
        *,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self._binary = binary
        self.cwd = cwd
        self.env = dict(env or {})

    @property
    def binary(self) -> str:
        """The path of the program. Raises `Refused` if there is none."""
        for path, source in [(self._binary, "the argument binary"), (os.environ.get("NETLATHE"), "NETLATHE")]:
            if path:
                found = shutil.which(os.fspath(path))
                if not found:
                    raise Refused(f"{source} names {os.fspath(path)}, which is not a program: correct the path")
                return os.path.abspath(found)
        found = str(_OWN) if os.access(_OWN, os.X_OK) else shutil.which("netlathe")
        if not found:
            raise Refused(
                "the program netlathe is not on PATH: install it (cargo install --path crates/cli, or the package "
                "for Debian), or set NETLATHE to its path"
            )
        return found

    def run(self, scenario: Scenario, **options: object) -> Run:
        """Runs a scenario: a path, TOML text, or a mapping as `tomllib` reads it.

        with netlathe.run(scenario, duration="10s") as r:
            r.set("down.rate", "20Mbps", at=5)
            assert r.wait().down.starved == 0
        """
        return self._start("run", (), options, scenario)

    def gen(self, **options: object) -> Run:
        """Generates traffic from a description, or replays a capture.

        netlathe.gen(out="pcap:in.pcap", stream="udp 10.0.0.1:1 > 10.0.0.2:9", count=1000).wait()
        """
        return self._start("gen", (), options)

    def shape(self, **options: object) -> Run:
        """Sends traffic again with an exact rate or gap.

        netlathe.shape(in_="pcap:in.pcap", out="wire:10G,pcap=out.pcap", gap="fixed 10us").wait()
        """
        return self._start("shape", (), options)

    def emulate(self, **options: object) -> Run:
        """Impairs traffic as tc-netem does, in the direction that you name.

        netlathe.emulate(in_="pcap:in.pcap", out="pcap:out.pcap", forward="delay 10ms 2ms loss 1%").wait()
        """
        return self._start("emulate", (), options)

    def limit(self, **options: object) -> Run:
        """Limits each of many users to a rate.

        netlathe.limit(in_="pcap:in.pcap", out="null", key="dst-ip", rate="1Mbps", mode="police").wait()
        """
        return self._start("limit", (), options)

    def measure(self, **options: object) -> Run:
        """Measures gaps, rates, loss, order and delay of what arrives.

        netlathe.measure(pcap="out.pcap", expect="fixed 10us").wait()
        """
        return self._start("measure", (), options)

    def search(self, **options: object) -> Run:
        """Finds the highest rate whose loss stays within a goal.

        netlathe.search(dut="limit key dst-ip rate 50Mbps mode police", trial="1s", max="1Mpps").wait()
        """
        return self._start("search", (), options)

    def disk(self, **options: object) -> Run:
        """Mounts a directory as a slow or failing disk, until the run is stopped.

        with netlathe.disk(backing="data", mount="slow", delay="10ms") as r:
            r.ready()
        """
        return self._start("disk", (), options)

    def slice(self, *arguments: str, **options: object) -> Run:
        """Shows where a packet's time goes. Arguments are those of the command.

        netlathe.slice("kernel", "--", "curl", "http://10.0.0.2/").wait()
        """
        return self._start("slice", arguments, options)

    def check(self, scenario: Scenario) -> str:
        """Returns the scenario in its long form, as the program understands it. Raises `Refused` with all problems."""
        with Run.folder() as folder:
            return self._command(["check", file_of(scenario, Path(folder))], folder)

    def command(self, *arguments: str) -> str:
        """Runs any command of the program to its end and returns what it printed: `command("doctor", "--json")`."""
        return self._command(arguments)

    def describe(self, *command: str) -> None:
        """Prints the program's help: `describe("shape")`, `describe("stages", "delay")`."""
        print(self._command(["help", *command]), end="", file=sys.stdout)

    def line(self, *arguments: str) -> list[str]:
        """The command line that runs the program with these arguments."""
        return [self.binary, *arguments]

    def environment(self) -> dict[str, str]:
        """The environment of the program."""
        return {**os.environ, **self.env}

    def _start(
        self, name: str, arguments: Sequence[str], options: Mapping[str, object], scenario: Scenario | None = None
    ) -> Run:
        split = list(arguments).index("--") if "--" in arguments else len(arguments)
        options = {**self._defaults(name), **options}
        control = options.get("control")
        if control is None and name in _CONTROLLED and options.get("cores") is None:
            control = not (scenario is not None and is_sweep(scenario)) and has_control(self.binary)
        if isinstance(control, bool):
            # The run has its own socket, or none.
            options.pop("control", None)
        words = [name, *arguments[:split], "--json", *option_words(options)]
        stats_every = options.get("stats_every")
        run = Run(self, words, list(arguments[split:]), scenario, stats_every=stats_every, control=control)
        self._started_run(run)
        return run

    def _defaults(self, command: str) -> Mapping[str, object]:
        """Returns default options for runs that do not set them."""
        return {}

    def _started_run(self, run: Run) -> None:
        """Called for every run."""

    def _command(self, arguments: Sequence[str], hidden: str = "") -> str:
        line = self.line(*arguments)
        try:
            done = subprocess.run(line, cwd=self.cwd, env=self.environment(), stdin=subprocess.DEVNULL, capture_output=True)
        except OSError as error:
            raise Refused(f"{line[0]} does not start: {error}", arguments=line) from error
        if done.returncode == 0:
            return done.stdout.decode()
        message = complaints(done.stderr.decode(errors="replace"), hidden)
        kind: type[Error] = Refused if done.returncode == 2 else Failed
        raise kind(message, status=done.returncode, arguments=line)


def option_words(options: Mapping[str, object]) -> list[str]:
    """Returns keyword arguments as words of the command line. `Program` documents the rules."""
    words: list[str] = []
    for name, value in options.items():
        option = "--" + name.rstrip("_").replace("_", "-")
        if value is None or value is False:
            continue
        if isinstance(value, Mapping):
            separator = " = " if option == "--class" else "="
            value = [f"{key}{separator}{_word(entry)}" if key else _word(entry) for key, entry in value.items()]
        for entry in value if isinstance(value, list) else [value]:
            if entry is True:
                words.append(option)
            elif isinstance(entry, tuple):
                words += [option, *map(_word, entry)]
            else:
                words += [option, _word(entry)]
    return words


def _word(value: object) -> str:
    if isinstance(value, str | os.PathLike):
        return os.fspath(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    raise TypeError(f"an option cannot be {value!r}: write a text with its unit, a number, True, a list, a tuple or a dict")


@cache
def has_control(binary: str) -> bool:
    """Whether the program was built with the service, which control sockets need."""
    shown = subprocess.run([binary, "run", "--help"], stdin=subprocess.DEVNULL, capture_output=True)
    return b"--control" in shown.stdout


@cache
def drop_reasons(binary: str) -> frozenset[str]:
    """Returns the drop reasons of the program."""
    figures = subprocess.run([binary, "help", "figures"], stdin=subprocess.DEVNULL, capture_output=True, check=True)
    paths = (path.split() for path in figures.stdout.decode().splitlines())
    return frozenset(path[0].removeprefix("drops.") for path in paths if path and path[0].startswith("drops."))
