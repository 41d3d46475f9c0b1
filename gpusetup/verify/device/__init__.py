"""What this torch and its devices are, read from torch and the driver, and their first
computations."""
