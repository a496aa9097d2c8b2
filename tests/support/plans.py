"""A plan of one allocation as text, for tests of what reads it."""

from __future__ import annotations

import json
from typing import Any


def plan_text(**changes: Any) -> bytes:
    """Return allocation.json of one solo measurement, with other values of its attempt where given."""
    values: dict[str, Any] = {
        "slot": "baseline/solo/w/r1",
        "attempt": 1,
        "kind": "solo",
        "workload": "w",
        "repeat": 1,
        "pair": 0,
    }
    values |= {"order": ["baseline"], "updates": 7, "inputs_sha256": "", "segment": 0, "resume": None, **changes}
    side: dict[str, Any] = {
        "id": "baseline",
        "tree": "/t",
        "files": "/f",
        "snapshot_sha256": "0",
        "python": "/p",
        "adapter": "a:b",
    }
    side |= {"python_path": [], "environment": {}, "pass_environment": [], "launch": [], "reads": [], "container": None}
    plan: dict[str, Any] = {
        "format": "allocation/1",
        "allocation": "a1",
        "key": "k",
        "home": "/h",
        "manifest_sha256": "0",
    }
    plan |= {"protocol_sha256": "0", "harness_sha256": "0", "data": {}}
    return json.dumps({**plan, "sides": {"baseline": side}, "attempts": [values]}).encode()
