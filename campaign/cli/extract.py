"""``campaign extract``."""

from __future__ import annotations

from campaign.cli.export import extract_command as command

__all__ = ["command"]
