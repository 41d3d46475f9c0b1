"""Reads training configs with the positions of their values, and knows what their keys mean."""
