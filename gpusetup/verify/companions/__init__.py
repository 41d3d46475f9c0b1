"""What stands on torch: each companion is imported and does its smallest real computation."""
