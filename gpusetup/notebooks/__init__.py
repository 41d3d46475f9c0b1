"""gpusetup in a notebook: the magic `%gpusetup`, and where notebooks run."""
