"""Turns all findings about one machine into one root cause, and the build that fits."""
