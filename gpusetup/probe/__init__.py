"""Reads the machine through a `System`, with one file per subject; `machine.py` assembles the
result."""
