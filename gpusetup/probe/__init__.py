"""Reads the machine through a `System`, with one file for each subject; `machine.py` puts them
together."""
