"""Tests whether this interpreter's torch works on its GPUs, by running computations.

The folder needs only the standard library and torch, so `python -m gpusetup.verify`, `python
PATH/verify` and a copy of the folder in an empty place run the same program. The code runs on
Python 3.8 and torch 1.13 or newer.
"""
