"""Known messages of programs, as rows that are used for pasted reports and for this machine's own
logs."""
