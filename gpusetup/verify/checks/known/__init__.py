"""Checks whose expected results are computed in plain Python, from lists, integers and sums,
without torch.

The random checks in `ration.py` compare a kernel with torch's own float64 result on the CPU. If a
CPU kernel is wrong in every format, that float64 result is wrong too, and the comparison passes.
The checks in this package find such a kernel, because they do not use torch for the expected
result.
"""
