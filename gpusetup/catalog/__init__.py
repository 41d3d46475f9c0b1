"""Dated facts about builds, GPUs and drivers (from `data/`), and functions that look them up."""
