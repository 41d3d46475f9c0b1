"""Turns a text that somebody posted into the same snapshot that a live machine gives. Pure
functions, without any diagnostic rules."""
