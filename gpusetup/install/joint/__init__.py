"""Asks uv which versions go together, with the user's own indexes."""
