"""Compares the machines of a fleet, and finds the nodes that differ from the others."""
