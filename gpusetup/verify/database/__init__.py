"""torch's own database of operators (`op_db`), with float64 on the CPU as what is right."""
