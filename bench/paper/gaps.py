"""Gaps and rates from lists of departures. Shares no code with netlathe's reports."""

import math
import struct

MAGIC_NS = 0xA1B23C4D   # of captures as netlathe writes them: little-endian, nanoseconds


def listed(path):
    """Starts in ps and lengths with FCS of the data frames that `frames=FILE` lists."""
    starts, lengths = [], []
    with open(path, encoding="ascii") as file:
        next(file)
        for row in file:
            start, length, kind = row.rstrip("\n").split(",")
            if kind == "data":
                starts.append(int(start))
                lengths.append(int(length))
    return starts, lengths


def records(path):
    """(ns, bytes, length with FCS) of each record of a capture that netlathe wrote."""
    with open(path, "rb") as file:
        content = file.read()
    if struct.unpack_from("<I", content)[0] != MAGIC_NS:
        raise ValueError(f"{path} is not a capture that netlathe wrote")
    at = 24
    while at < len(content):
        seconds, ns, kept, whole = struct.unpack_from("<IIII", content, at)
        at += 16
        yield seconds * 1_000_000_000 + ns, content[at:at + kept], whole + 4
        at += kept


def write_capture(path, frames):
    """A capture of (ns, bytes) as netlathe writes them."""
    with open(path, "wb") as file:
        file.write(struct.pack("<IHHiIII", MAGIC_NS, 2, 4, 0, 0, 65_535, 1))
        for ns, frame in frames:
            seconds, rest = divmod(ns, 1_000_000_000)
            file.write(struct.pack("<IIII", seconds, rest, len(frame), len(frame)) + frame)


def number(frame, port=2000):
    """The number in the stamp that netlathe puts at the end of its packets, of UDP frames to a port."""
    if frame[12:14] != b"\x08\x00" or frame[23] != 17 or frame[36:38] != port.to_bytes(2, "big"):
        return None
    stamp = frame[:14 + int.from_bytes(frame[16:18], "big")][-18:]
    return int.from_bytes(stamp[6:10], "big") if stamp[:2] == b"nL" else None


def numbered(path):
    """Returns times in ps by sequence number."""
    return {number(frame): ns * 1000 for ns, frame, _ in records(path) if number(frame) is not None}


def between(starts):
    """Gaps, start to start."""
    return [after - before for before, after in zip(starts, starts[1:])]


def quantile(ordered, share):
    """Returns the smallest value that at least `share` of all values do not exceed."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def summary(gaps):
    """Figures of gaps in ps, as ns."""
    mean = sum(gaps) / len(gaps)
    return {
        "count": len(gaps),
        "mean_ns": mean / 1e3,
        "sd_ns": math.sqrt(math.fsum((gap - mean) ** 2 for gap in gaps) / len(gaps)) / 1e3,
        "min_ns": min(gaps) / 1e3,
        "max_ns": max(gaps) / 1e3,
        "range_ns": (max(gaps) - min(gaps)) / 1e3,
    }


def errors(gaps, asked):
    """|gap got - gap asked|, pair by pair, in ns."""
    off = sorted(abs(got - ask) for got, ask in zip(gaps, asked))
    return {
        "p50_ns": quantile(off, 0.5) / 1e3,
        "p99_ns": quantile(off, 0.99) / 1e3,
        "max_ns": off[-1] / 1e3,
        "within_1us": sum(1 for e in off if e <= 1_000_000) / len(off),
    }


def window_rates(starts, lengths, window_ps):
    """Bytes per second in each whole window from the first frame on; a frame counts where it starts."""
    first = starts[0]
    windows = (starts[-1] - first) // window_ps
    totals = [0] * windows
    for start, length in zip(starts, lengths):
        window = (start - first) // window_ps
        if window < windows:
            totals[window] += length
    return [total * 1e12 / window_ps for total in totals]


def envelope(gaps, parts):
    """(first frame, least, median, largest) gap in µs of each of `parts` equal parts."""
    size = max(1, len(gaps) // parts)
    bands = []
    for first in range(0, len(gaps) - size + 1, size):
        part = sorted(gaps[first:first + size])
        bands.append([first, *(round(value / 1e6, 4) for value in (part[0], part[size // 2], part[-1]))])
    return bands


def histogram(gaps, low_ps, width_ps, bins):
    """Returns the shares of gaps in equal bins, then the shares below and above the bins."""
    counts, below, above = [0] * bins, 0, 0
    for gap in gaps:
        place = (gap - low_ps) // width_ps
        if place < 0:
            below += 1
        elif place >= bins:
            above += 1
        else:
            counts[place] += 1
    return {"shares": [round(n / len(gaps), 7) for n in counts], "below": below / len(gaps), "above": above / len(gaps)}


def reordered_share(sequence):
    """RFC 4737: returns the share of frames whose number is less than that of an earlier arrival."""
    highest, late = -1, 0
    for number in sequence:
        late += number < highest
        highest = max(highest, number)
    return late / len(sequence)
