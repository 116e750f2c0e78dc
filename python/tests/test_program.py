"""Finding the program, writing its command line, and its errors."""

import os
import re
import sys
from datetime import timedelta
from pathlib import Path

import pytest

import netlathe
from netlathe import Program, Refused
from netlathe._program import option_words


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"gap": "fixed 10us", "count": 1000}, "--gap|fixed 10us|--count|1000"),
        ({"in_": "eth0", "catch_up": "none"}, "--in|eth0|--catch-up|none"),
        ({"one_way": True, "yes": False, "seed": None}, "--one-way"),
        ({"stream": ["a", "b"]}, "--stream|a|--stream|b"),
        ({"between": ("eth0", "eth1")}, "--between|eth0|eth1"),
        ({"rate": {"api": "5Mbps", "": "1Gbps"}}, "--rate|api=5Mbps|--rate|1Gbps"),
        ({"class_": {"api": "tcp dport 80"}}, "--class|api = tcp dport 80"),
        ({"report": Path("results")}, "--report|results"),
        ({"speed": 1.5}, "--speed|1.5"),
    ],
)
def test_keyword_arguments_are_options(options: dict[str, object], words: str) -> None:
    assert option_words(options) == words.split("|")


def test_other_types_are_refused() -> None:
    with pytest.raises(TypeError, match="datetime.timedelta"):
        option_words({"duration": timedelta(seconds=1)})


def _fake(folder: Path) -> str:
    folder.mkdir()
    path = folder / "netlathe"
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return str(path)


def test_argument_then_variable_then_own_copy_then_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    argument, variable, own, on_path = (_fake(tmp_path / name) for name in "abcd")
    monkeypatch.setenv("NETLATHE", variable)
    monkeypatch.setattr("netlathe._program._OWN", Path(own))
    monkeypatch.setenv("PATH", os.path.dirname(on_path))
    assert Program(argument).binary == argument
    assert Program().binary == variable
    monkeypatch.delenv("NETLATHE")
    assert Program().binary == own
    os.remove(own)
    assert Program().binary == on_path
    os.remove(on_path)
    with pytest.raises(Refused, match="not on PATH: install it"):
        Program().binary


def test_a_path_that_is_no_program_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NETLATHE", str(tmp_path / "none"))
    with pytest.raises(Refused, match="NETLATHE names .*none, which is not a program"):
        netlathe.gen(out="null")


def test_every_command_of_the_program_has_a_function() -> None:
    helped = netlathe.command("help").partition("Commands:")[2].partition("Options:")[0]
    commands = set(re.findall(r"^  ([a-z]+) ", helped, re.MULTILINE))
    # These print no report of a run: `command` runs them.
    assert {name for name in commands if not hasattr(netlathe, name)} <= {
        "doctor", "manual", "help", "serve", "ctl", "top", "otg", "clock", "merge",
    }
    assert {"run", "gen", "shape", "emulate", "limit", "measure", "search", "disk", "check"} <= commands


def test_commands_return_what_they_print_and_raise_what_they_say(capsys: pytest.CaptureFixture[str]) -> None:
    assert netlathe.command("--version").startswith("netlathe ")
    with pytest.raises(Refused) as error:
        netlathe.command("no-such-command")
    assert error.value.status == 2 and "no-such-command" in error.value.message
    netlathe.describe("stages", "delay")
    assert "delay" in capsys.readouterr().out


def test_the_package_imports_only_the_standard_library() -> None:
    folder = str(Path(netlathe.__file__).parents[1])
    script = (
        f"import sys; sys.path.append({folder!r}); import netlathe, netlathe.aio;"
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    loaded = netlathe.Program(sys.executable).command("-S", "-c", script).split()
    assert set(loaded) - set(sys.stdlib_module_names) <= {"netlathe", "__main__"}
