"""Reads the properties of this torch and its devices from torch and the driver, and runs their
first computations."""
