"""What every part uses: the plan and the protocol, names of files, strict JSON, tables, endings."""
