"""From rows to evidence, verdict, provenance and report."""
