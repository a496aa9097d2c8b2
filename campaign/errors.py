"""The errors a user can meet. Each carries its exit code and, where there is one, the command to try next."""

from __future__ import annotations

import enum


class ExitCode(enum.IntEnum):
    """What the process returns. Precedence where several apply: 5, then 3, then 4."""

    DONE = 0
    BUG = 1
    USAGE = 2
    MISSED = 3
    WANTING = 4
    TAMPERED = 5
    INFRASTRUCTURE = 6
    INTERRUPTED = 130


class CampaignError(Exception):
    """An error to show to the user without a traceback.

    Args:
        what: One sentence that says what is wrong.
        where: The place, ``file:line:column`` for text files.
        why: The reason, if ``what`` does not already say it.
        hint: The command or the edit to try next.
    """

    exit_code = ExitCode.USAGE

    def __init__(self, what: str, *, where: str = "", why: str = "", hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.why = why
        self.hint = hint

    def lines(self) -> list[str]:
        """Return the message for a terminal, one item a line."""
        head = f"{self.where}: {self.what}" if self.where else self.what
        rest = [f"  why: {self.why}"] if self.why else []
        return [head, *rest, *([f"  try: {self.hint}"] if self.hint else [])]


class ConfigError(CampaignError):
    """campaign.toml, or an option, asks for something that cannot be."""


class StateError(CampaignError):
    """The campaign is not in a state that allows what was asked."""


class EvidenceError(CampaignError):
    """Evidence does not parse, or is not what was sealed."""

    exit_code = ExitCode.TAMPERED


class InfrastructureError(CampaignError):
    """The scheduler, the file system or another part of the machine did not do its work."""

    exit_code = ExitCode.INFRASTRUCTURE
