"""Dated facts about builds, GPUs and drivers (`data/`), and how they are asked."""
