"""Tests of operators with samples from torch's own operator database (`op_db`) and with entries
written here. The expected results are computed in float64 on the CPU."""
