"""Processes, the conversation with them from the parent's end and from theirs, and where the code of one came from."""
