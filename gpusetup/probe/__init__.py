"""Reads the facts about a machine through a `System`, with one module per subject; `machine.py`
combines the results."""
