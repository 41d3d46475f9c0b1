"""Questions from torch's own operator database (`op_db`), with float64 on the CPU as the right
answer."""
