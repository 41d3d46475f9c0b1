"""Turns answers into something printable: text, JSON, Markdown. Only `console` prints."""
