"""The harness: what happens inside an allocation. Frozen with the campaign, the same for both sides.

It imports nothing but the standard library and itself, by relative names, so that its frozen copy runs from any folder
and beside any package of a user. `launch.py` is where all of its programs begin: the parent (allocation/parent.py), one
worker per side (worker/worker.py), and the comparer of a case (tensors/comparer.py). docs/architecture.md says which
part may import which.
"""
