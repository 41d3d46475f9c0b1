"""What this torch and its devices are: read from torch and the driver, and tested with the first
computations."""
