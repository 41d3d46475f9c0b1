"""Tests, by running computations, whether this interpreter's torch works on its GPUs.

The folder needs only the standard library and torch, so `python -m gpusetup.verify`, `python
PATH/verify` and a copy of the folder in an empty place run the same program. Python 3.8 syntax;
torch 1.13 or newer.
"""
