"""Whose GPU it is."""
