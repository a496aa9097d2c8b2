"""The harness: what happens inside an allocation. Frozen with the campaign, the same for both sides.

It imports nothing but the standard library and itself, by relative names, so that its frozen copy runs from any folder
and beside any package of a user. `launch.py` is where both of its programs begin: the parent, and one worker per side.
"""
