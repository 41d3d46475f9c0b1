"""Decides whether a training fits on GPUs, with which settings, and how much memory is left. Pure
functions."""
