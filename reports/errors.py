"""Why a report is not written."""

from __future__ import annotations


class ReportError(Exception):
    """The files to report on are missing, do not parse, or do not belong together.

    Args:
        what: One sentence that says what is wrong.
        where: The place, ``file`` or ``file:line``.
    """

    def __init__(self, what: str, *, where: str) -> None:
        super().__init__(f"{where}: {what}")
        self.what = what
        self.where = where
