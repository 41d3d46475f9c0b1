"""Decides whether a training job fits on the GPUs, with which settings, and how much memory
remains. Pure functions."""
