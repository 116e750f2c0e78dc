"""What the tests share. NETLATHE names the program to test."""

from importlib.metadata import entry_points
from pathlib import Path

import pytest

import netlathe

# If the package is on PYTHONPATH but not installed, pytest does not find its plugin by itself.
INSTALLED = any(entry.value == "netlathe.pytest_plugin" for entry in entry_points(group="pytest11"))

pytest_plugins = ["pytester"] + ([] if INSTALLED else ["netlathe.pytest_plugin"])

STREAM = "udp 10.0.0.1:1000 > 10.0.0.2:2000 size random 64B-1518B"


@pytest.fixture
def program(tmp_path: Path) -> netlathe.Program:
    """The program in a folder of its own, with 1000 frames in `in.pcap`."""
    program = netlathe.Program(cwd=tmp_path)
    program.gen(out="pcap:in.pcap", stream=STREAM, count=1000, seed=7).wait()
    return program
