"""Freezing: the copies, digests and facts that a campaign rests on."""
