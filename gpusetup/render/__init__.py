"""Turns answers into text, JSON or Markdown. Only `console` prints."""
