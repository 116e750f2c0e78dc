"""Reads frames from captures and writes them."""

from __future__ import annotations

import os
import struct
import subprocess
from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import Any, BinaryIO, NamedTuple

from netlathe._errors import Failed
from netlathe._program import Program
from netlathe._run import complaints

_NANOSECONDS, _MICROSECONDS = 0xA1B23C4D, 0xA1B2C3D4
_ETHERNET = 1


class Frame(NamedTuple):
    """A frame of a capture."""

    time_ns: int
    """The stamp in ns; in captures of virtual time since the start of the run."""
    data: bytes
    """The frame from the destination MAC on, without FCS."""

    @property
    def length(self) -> int:
        """The length of the frame with FCS, in bytes, as netlathe counts it."""
        return len(self.data) + 4

    def scapy(self) -> Any:
        """The frame as a Scapy packet with its time. Scapy must be installed."""
        packet = import_module("scapy.layers.l2").Ether(self.data)
        packet.time = self.time_ns / 1e9
        return packet


def read_frames(path: str | os.PathLike[str], program: Program | None = None) -> Iterator[Frame]:
    """The frames of a capture: pcap or pcapng, also compressed, whatever the program reads.

        for frame in netlathe.read_frames("out.pcap"):
            print(frame.time_ns, frame.data.hex())

    The program converts what is not a plain capture of Ethernet frames. Raises `Failed` if it cannot be read, after
    the frames that could be.
    """
    with open(path, "rb") as file:
        header = file.read(24)
        form = _form(header)
        if form:
            yield from _records(file, *form, name=os.fspath(path))
            return
    program = program or Program()
    line = [program.binary, "measure", "--pcap", os.path.abspath(path), "--write", "-", "-q"]
    with subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout and process.stderr
        form = _form(process.stdout.read(24))
        if form:
            yield from _records(process.stdout, *form, name=os.fspath(path))
        message = complaints(process.stderr.read().decode(errors="replace"))
    if process.returncode != 0:
        raise Failed(message, status=process.returncode, arguments=line)


def write_frames(path: str | os.PathLike[str], frames: Iterable[object], *, gap_ns: int = 1000) -> int:
    """Writes frames into a pcap with ns stamps, and returns their number.

    A frame is a `Frame`, any object with `__bytes__` and `time` in seconds (a Scapy packet), or `bytes` from the
    destination MAC on, without FCS. `bytes` have no stamp: they are `gap_ns` after the frame before.

        netlathe.write_frames("in.pcap", [b"\\x02" * 60, b"\\x02" * 60])
    """
    count, now = 0, -gap_ns
    with open(path, "wb") as file:
        file.write(struct.pack("<IHHiIII", _NANOSECONDS, 2, 4, 0, 0, 262144, _ETHERNET))
        for frame in frames:
            now, data = _stamped(frame, now + gap_ns)
            file.write(struct.pack("<IIII", now // 10**9, now % 10**9, len(data), len(data)))
            file.write(data)
            count += 1
    return count


def dataframe(frames: Iterable[Frame]) -> Any:
    """The frames as a `pandas.DataFrame` with `time_ns`, `gap_ns`, `length` (with FCS) and `data`.

    `gap_ns` is from the start of the frame before. pandas must be installed.
    """
    pandas = import_module("pandas")
    rows = [(frame.time_ns, frame.length, frame.data) for frame in frames]
    table = pandas.DataFrame(rows, columns=["time_ns", "length", "data"])
    table.insert(1, "gap_ns", table["time_ns"].diff())
    return table


def _stamped(frame: object, next_ns: int) -> tuple[int, bytes]:
    if isinstance(frame, Frame):
        return frame
    if isinstance(frame, bytes | bytearray | memoryview):
        return next_ns, bytes(frame)
    if hasattr(frame, "__bytes__"):
        seconds = getattr(frame, "time", None)
        return (next_ns if seconds is None else round(seconds * 10**9)), bytes(frame)
    raise TypeError(f"{frame!r} is not a frame: write bytes, a Frame or a Scapy packet")


def _form(header: bytes) -> tuple[str, int] | None:
    """Returns the byte order of a plain capture of Ethernet frames, and its time unit in ns."""
    for order in "<>":
        magic, link = struct.unpack(f"{order}I16xI", header) if len(header) == 24 else (0, 0)
        if magic in (_NANOSECONDS, _MICROSECONDS) and link & 0xFFFF == _ETHERNET:
            return order, 1 if magic == _NANOSECONDS else 1000
    return None


def _records(file: BinaryIO | Any, order: str, unit_ns: int, name: str) -> Iterator[Frame]:
    record = struct.Struct(f"{order}IIII")
    number = 0
    while head := file.read(record.size):
        number += 1
        seconds, fraction, length, _ = record.unpack(head) if len(head) == record.size else (0, 0, -1, 0)
        data = file.read(length) if length >= 0 else b""
        if len(data) != length:
            raise Failed(f"{name} ends within record {number}")
        yield Frame(seconds * 10**9 + fraction * unit_ns, data)
