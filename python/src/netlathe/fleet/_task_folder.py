"""The folder of a task, in which a warden leaves files for its agent, and its removal."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

STATUS = "status"
"""The file with the status of the program, once that has ended. `stdout` and `stderr` are beside it."""

LEASE_ENDED = 254
"""Status of a warden whose lease was not renewed."""

_PREFIX = "netlathe-fleet-"


def make() -> tuple[Path, int]:
    """Makes a folder. Returns its path and a descriptor. The folder is in use as long as a process has the descriptor or a copy
    of it. Folders of killed processes are removed first."""
    _remove_unused()
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        # Until the folder is locked, another process may consider it unused and remove it.
        with contextlib.suppress(FileNotFoundError):
            descriptor = os.open(folder, os.O_DIRECTORY)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if folder.exists():
                return folder, descriptor
            os.close(descriptor)


def remove(folder: Path, descriptor: int) -> None:
    """Removes a folder made by this process."""
    shutil.rmtree(folder, ignore_errors=True)
    os.close(descriptor)


@contextlib.contextmanager
def made() -> Iterator[tuple[Path, int]]:
    """Makes a folder that exists during a `with` block."""
    folder, descriptor = make()
    try:
        yield folder, descriptor
    finally:
        remove(folder, descriptor)


def read(path: Path) -> str:
    """Returns the text of a file, or an empty text if there is none yet."""
    try:
        return path.read_text("utf-8", "replace")
    except FileNotFoundError:
        return ""


def _remove_unused() -> None:
    """Removes folders whose agent and warden were both killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        # The folder may belong to another user, or vanish meanwhile.
        with contextlib.suppress(OSError):
            descriptor = os.open(folder, os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if os.fstat(descriptor).st_uid == os.geteuid():
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(descriptor)
