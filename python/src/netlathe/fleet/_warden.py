"""Runs one program on behalf of an agent, and ends it when the agent is gone or does not renew its lease.

It is a process of its own, so that it outlives an agent that was killed: the pipe on its stdin ends then. It reads lines:
`renew`, `start INSTANT` and `stop`. All but `renew` renew the lease, too. It needs only the standard library.

    python -m netlathe.fleet._warden LEASE_S STDOUT STDERR -- PROGRAM ARGUMENTS
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys
import time

_LOOK_S = 0.05
# From the signal to the end of a run, which writes its report and restores interfaces.
_PATIENCE_S = 5.0
_PR_SET_PDEATHSIG = 1


def _before_the_program() -> None:
    # Ignored here, and a program would inherit that.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGINT)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends the program and what it started: as Ctrl-C does, then for good."""
    for number, patience_s in ((signal.SIGINT, _PATIENCE_S), (signal.SIGKILL, _PATIENCE_S)):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        end = time.monotonic() + patience_s
        while process.poll() is None and time.monotonic() < end:
            time.sleep(_LOOK_S)
    process.wait()
    try:
        # What it left in its group.
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def watch(lease_s: float, out: str, err: str, arguments: list[str]) -> int:
    """Runs the program to its end. Returns its status; 128 + a signal's number if one ended it."""
    with open(out, "wb") as stdout, open(err, "wb") as stderr:
        process = subprocess.Popen(
            arguments,
            stdin=subprocess.PIPE,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
            preexec_fn=_before_the_program,
        )
    renewed = time.monotonic()
    unread = b""
    while process.poll() is None:
        if select.select([0], [], [], _LOOK_S)[0]:
            got = os.read(0, 4096)
            if not got:
                _end(process)
                break
            *lines, unread = (unread + got).split(b"\n")
            renewed = time.monotonic()
            for line in lines:
                word, _, rest = line.partition(b" ")
                if word == b"start" and process.stdin:
                    try:
                        process.stdin.write(rest + b"\n")
                        process.stdin.close()
                    except BrokenPipeError:
                        # It has ended, which its status says.
                        pass
                elif word == b"stop":
                    _end(process)
        elif time.monotonic() - renewed > lease_s:
            with open(err, "ab") as stderr:
                stderr.write(b"fleet: ended, since no controller renewed the lease\n")
            _end(process)
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


if __name__ == "__main__":
    # Ctrl-C in a terminal is for the controller, which then ends everything in order.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _lease, _out, _err, _dashes, *_arguments = sys.argv[1:]
    sys.exit(watch(float(_lease), _out, _err, _arguments))
