"""Turns a text that somebody posted into the same kind of snapshot as a probed machine. All
functions are pure, and none contains diagnostic rules."""
