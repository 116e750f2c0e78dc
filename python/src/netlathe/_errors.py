"""The errors of runs that did not work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from netlathe._report import Report


class Error(Exception):
    """A run did not work. `Refused`, `Failed` and `ExpectationMissed` say how.

    `message` is what the program printed about it, one problem per line. `status` is its exit status; minus the number
    of a signal that ended it; None if it did not start. `report` is its report, or None. `arguments` is the command.
    """

    def __init__(
        self, message: str, *, status: int | None = None, report: Report | None = None, arguments: Sequence[str] = ()
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.report = report
        self.arguments = list(arguments)


class Refused(Error):
    """The program is missing, or refused the command or the scenario, so nothing ran. Or a run refused a change."""


class Failed(Error):
    """The run ended early or with an error. `report` has the figures up to then, or is None."""


class ExpectationMissed(Error):
    """The run ended, but an expectation was missed. `report` is the whole report."""
