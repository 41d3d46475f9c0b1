"""What is tried on a device, and the table that says which level tries it."""
