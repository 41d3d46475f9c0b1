"""What it takes: every term of the memory as a formula, and what a GPU has."""
