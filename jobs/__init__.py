"""The harness: what happens inside an allocation. Frozen with the campaign, the same for both sides."""
