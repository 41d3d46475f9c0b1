"""Parsers for the output of tools. Pure functions: they take text, wherever it comes from."""
