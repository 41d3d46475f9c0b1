"""Reads the machine. `system.py` is the door; one file per subject with its READERS."""
