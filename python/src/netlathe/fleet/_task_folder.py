"""The folder of a task: what a warden leaves for its agent in it, and who removes it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

STATUS = "status"
"""The file with the status of the program, once that has ended. `stdout` and `stderr` are beside it."""

LEASE_ENDED = 254
"""Status of a warden whose lease was not renewed."""

_PREFIX = "netlathe-fleet-"


def make() -> tuple[Path, int]:
    """A new folder, and a descriptor of it. It is in use as long as one process has that descriptor or its copy."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        descriptor = os.open(folder, os.O_DIRECTORY)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if folder.exists():
            return folder, descriptor
        # Another agent took it for an old one before the lock.
        os.close(descriptor)


def remove(folder: Path, descriptor: int) -> None:
    """Removes a folder that this process made."""
    shutil.rmtree(folder, ignore_errors=True)
    os.close(descriptor)


def remove_unused() -> None:
    """Removes the folders whose agent and warden were both killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        # It may be another user's, or go while this looks at it.
        with contextlib.suppress(OSError):
            descriptor = os.open(folder, os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if os.fstat(descriptor).st_uid == os.geteuid():
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(descriptor)
