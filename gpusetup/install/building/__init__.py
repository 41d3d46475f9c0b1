"""Builds a package from its source against the torch of the target, where that is asked for."""
