"""Turns answers into something printable: text, JSON, Markdown. Nothing here prints but `console`."""
