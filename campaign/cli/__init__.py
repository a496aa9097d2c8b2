"""The command line: one file per command; each parses its options and calls the library."""
