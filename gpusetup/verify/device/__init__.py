"""Reads the properties of this torch and its devices, and runs their first computations."""
