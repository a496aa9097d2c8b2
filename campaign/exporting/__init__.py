"""One deterministic archive of a campaign for an auditor, with what verification needs and nothing of the machine."""
