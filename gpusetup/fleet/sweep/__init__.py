"""Finds slow, broken and unresponsive ranks, nodes and network paths by running collectives on
pairs of ranks."""
