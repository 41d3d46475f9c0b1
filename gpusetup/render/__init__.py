"""Turns the documents that commands return into text, JSON or Markdown. Only `console` prints
them."""
