"""Snapshots: the true bytes of a source tree, copied once, hashed while they are copied, and listed."""

from campaign.snapshot.digest import digest_folder, tree_digest
from campaign.snapshot.entries import Entry, Origin
from campaign.snapshot.listing import dump_listing, parse_listing, read_listing
from campaign.snapshot.take import Snapshot, take_snapshot
from campaign.snapshot.untracked import MostUntracked

__all__ = [
    "Entry",
    "MostUntracked",
    "Origin",
    "Snapshot",
    "digest_folder",
    "dump_listing",
    "parse_listing",
    "read_listing",
    "take_snapshot",
    "tree_digest",
]
