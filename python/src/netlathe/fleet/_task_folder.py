"""The folder of a task: what a warden leaves for its agent in it, and who removes it."""

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
    """A new folder, and a descriptor of it. It is in use as long as one process has that descriptor or its copy. Folders of
    killed processes are removed first."""
    _remove_unused()
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        # Another process may take it for an old one until it is locked.
        with contextlib.suppress(FileNotFoundError):
            descriptor = os.open(folder, os.O_DIRECTORY)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if folder.exists():
                return folder, descriptor
            os.close(descriptor)


def remove(folder: Path, descriptor: int) -> None:
    """Removes a folder that this process made."""
    shutil.rmtree(folder, ignore_errors=True)
    os.close(descriptor)


@contextlib.contextmanager
def made() -> Iterator[tuple[Path, int]]:
    """A new folder, for as long as the block."""
    folder, descriptor = make()
    try:
        yield folder, descriptor
    finally:
        remove(folder, descriptor)


def read(path: Path) -> str:
    """The text of a file; empty if there is none yet."""
    try:
        return path.read_text("utf-8", "replace")
    except FileNotFoundError:
        return ""


def _remove_unused() -> None:
    """Removes the folders whose processes, agent and warden, were both killed."""
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
