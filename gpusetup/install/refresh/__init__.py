"""What the live index lists beyond the catalog, and what is saved of it."""
