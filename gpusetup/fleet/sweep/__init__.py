"""Finds ranks, nodes and paths that are slow, broken or do not respond, with collectives on
pairs."""
