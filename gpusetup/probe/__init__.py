"""Reads the machine through a `System`, one subject a file; `machine.py` puts them together."""
