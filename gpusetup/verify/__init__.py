"""Proves with computations that the torch of this interpreter works on its GPUs.

The folder stands alone: the standard library, torch and itself. `python -m gpusetup.verify`,
`python PATH/verify` and a copy of the folder in an empty place are one program.
Python 3.8 syntax; torch 1.13 or newer.
"""
