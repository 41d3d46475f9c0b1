"""Somebody's training config: its text with the places of its values, and what its keys mean."""
