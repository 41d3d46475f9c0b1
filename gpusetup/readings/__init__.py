"""Parsers for the output of tools. They are pure functions that take text, whatever its source."""
