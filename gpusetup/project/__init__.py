"""Reads what the files of a project request of torch."""
