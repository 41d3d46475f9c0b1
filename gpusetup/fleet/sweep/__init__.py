"""Finds slow, broken and unresponsive ranks, nodes and network paths, with collectives on pairs of
ranks."""
