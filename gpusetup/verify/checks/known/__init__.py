"""Questions whose right answers Python works out without torch: from lists, integers and sums.

The ration judges a kernel by torch's own float64 on the CPU. On a CPU, a kernel that is wrong in
every format is wrong there too, so the ration calls it right. Here torch has no part in the answer.
"""
