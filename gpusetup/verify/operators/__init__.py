"""A census of operators: each in many formats, layouts and sizes, against an exact answer."""
