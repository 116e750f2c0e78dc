"""Captures in and out."""

import struct
from pathlib import Path

import pytest

from netlathe import Failed, Frame, Program, dataframe, read_frames, write_frames


def test_a_capture_is_read_and_written_unchanged(program: Program, tmp_path: Path) -> None:
    program.shape(in_="pcap:in.pcap", out="pcap:out.pcap", delay="1ms").wait()
    frames = list(read_frames(tmp_path / "out.pcap"))
    assert len(frames) == 1000
    assert min(frame.length for frame in frames) >= 64
    assert write_frames(tmp_path / "copy.pcap", frames) == 1000
    assert (tmp_path / "copy.pcap").read_bytes() == (tmp_path / "out.pcap").read_bytes()


def test_bytes_follow_at_the_gap_and_the_program_reads_them(program: Program, tmp_path: Path) -> None:
    write_frames(tmp_path / "mine.pcap", [bytes(60)] * 10, gap_ns=10_000)
    report = program.measure(pcap="mine.pcap", expect="fixed 10us").wait()
    assert report.measure.in_.frames == 10


def test_other_orders_and_units_are_read(tmp_path: Path) -> None:
    header = struct.pack(">IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
    (tmp_path / "big.pcap").write_bytes(header + struct.pack(">IIII", 3, 7, 2, 2) + b"ab")
    assert list(read_frames(tmp_path / "big.pcap")) == [Frame(3_000_007_000, b"ab")]


def test_other_forms_are_read_by_the_program(program: Program, tmp_path: Path) -> None:
    program.measure(pcap="in.pcap", write="packed.pcapng.zst").wait()
    packed = list(read_frames(tmp_path / "packed.pcapng.zst", program))
    assert packed == list(read_frames(tmp_path / "in.pcap"))
    # Only some frames are read, and the converting program ends without an error.
    assert next(read_frames(tmp_path / "packed.pcapng.zst", program)) == packed[0]


def test_a_capture_that_breaks_gives_its_frames_then_an_error(program: Program, tmp_path: Path) -> None:
    whole = (tmp_path / "in.pcap").read_bytes()
    (tmp_path / "cut.pcap").write_bytes(whole[:-1])
    frames = read_frames(tmp_path / "cut.pcap")
    assert len([next(frames) for _ in range(999)]) == 999
    with pytest.raises(Failed, match="ends within record 1000"):
        next(frames)


def test_what_is_no_capture_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.pcap").write_text("no capture")
    with pytest.raises(Failed, match="text.pcap"):
        list(read_frames(tmp_path / "text.pcap"))


def test_what_is_no_frame_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="3 is not a frame"):
        write_frames(tmp_path / "x.pcap", [3])


def test_packets_of_scapy(tmp_path: Path) -> None:
    l2 = pytest.importorskip("scapy.layers.l2")
    packet = l2.Ether(dst="02:00:00:00:00:02", src="02:00:00:00:00:01", type=0x88B5) / bytes(50)
    packet.time = 1.5
    write_frames(tmp_path / "scapy.pcap", [packet])
    (frame,) = read_frames(tmp_path / "scapy.pcap")
    assert frame.time_ns == 1_500_000_000
    assert bytes(frame.scapy()) == bytes(packet) and frame.scapy().dst == "02:00:00:00:00:02"


def test_tables_of_pandas(program: Program, tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    program.shape(in_="pcap:in.pcap", out="wire:10G,pcap=out.pcap", gap="fixed 10us").wait()
    table = dataframe(read_frames(tmp_path / "out.pcap"))
    assert list(table.columns) == ["time_ns", "gap_ns", "length", "data"]
    assert (table["gap_ns"].dropna() == 10_000).all() and len(table) == 1000
