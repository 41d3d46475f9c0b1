"""Checks whose right answers are computed in plain Python, from lists, integers and sums, without
torch.

The ration judges a kernel by torch's own float64 on the CPU. On a CPU, a kernel that is wrong in
every format is wrong there too, so the ration calls it right. Here torch has no part in the answer.
"""
