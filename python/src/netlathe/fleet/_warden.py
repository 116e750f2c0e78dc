"""Runs one program on behalf of an agent, and ends it when the agent is gone or does not renew its lease.

It is a separate process, so that it outlives a killed agent. The pipe on its stdin is closed then. It reads the lines
`renew`, `start INSTANT` and `stop`. Each of them renews the lease.

    python -m netlathe.fleet._warden FIRST_LEASE_S LEASE_S FOLDER -- PROGRAM ARGUMENTS
"""

from __future__ import annotations

import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
import time

from netlathe.fleet._task_folder import LEASE_ENDED, STATUS

_LOOK_S = 0.05
# Time for a run to write its report and restore interfaces after the signal.
_PATIENCE_S = 5.0
_PR_SET_PDEATHSIG = 1


def _before_the_program(warden: int) -> None:
    # The warden ignores these signals, and the program would inherit that.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGINT)
    if os.getppid() != warden:
        # The warden was killed before the call above, which then has no effect.
        os._exit(128 + signal.SIGKILL)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends the program and the processes in its group: as Ctrl-C does, then by SIGKILL."""
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
        # Processes that the program left in its group.
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def _forget(folder: str) -> None:
    """Removes the folder of a task whose agent is gone."""
    shutil.rmtree(folder, ignore_errors=True)


def _note(folder: str, status: int) -> None:
    """Writes the status of the program atomically."""
    path = os.path.join(folder, STATUS)
    with open(f"{path}.new", "w") as file:
        file.write(str(status))
    os.rename(f"{path}.new", path)


def watch(first_lease_s: float, lease_s: float, folder: str, arguments: list[str]) -> int:
    """Runs the program to its end, and keeps its output as long as the agent exists and renews the lease."""
    own = os.getpid()
    with open(os.path.join(folder, "stdout"), "wb") as stdout, open(os.path.join(folder, "stderr"), "wb") as stderr:
        process = subprocess.Popen(
            arguments,
            stdin=subprocess.PIPE,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
            preexec_fn=lambda: _before_the_program(own),
        )
    renewed, patience_s = time.monotonic(), first_lease_s
    unread = b""
    noted = False
    while True:
        if not noted and process.poll() is not None:
            noted = True
            _note(folder, process.returncode if process.returncode >= 0 else 128 - process.returncode)
        if select.select([0], [], [], _LOOK_S)[0]:
            got = os.read(0, 4096)
            if not got:
                _end(process)
                _forget(folder)
                return 0
            *lines, unread = (unread + got).split(b"\n")
            renewed, patience_s = time.monotonic(), lease_s
            for line in lines:
                word, _, rest = line.partition(b" ")
                if word == b"start" and process.stdin:
                    try:
                        process.stdin.write(rest + b"\n")
                        process.stdin.close()
                    except BrokenPipeError:
                        # The program has ended, which its status shows.
                        pass
                elif word == b"stop":
                    _end(process)
        elif time.monotonic() - renewed > patience_s:
            _end(process)
            _forget(folder)
            return LEASE_ENDED


if __name__ == "__main__":
    # Ctrl-C in a terminal is handled by the controller, which then ends everything in order.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _first, _lease, _folder, _dashes, *_arguments = sys.argv[1:]
    sys.exit(watch(float(_first), float(_lease), _folder, _arguments))
