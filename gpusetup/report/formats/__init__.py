"""One reader a format: each takes the whole text and gives what it finds."""
