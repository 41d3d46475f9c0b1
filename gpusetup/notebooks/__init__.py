"""gpusetup in a notebook: the magic `%gpusetup`, its answers as HTML, and where notebooks run."""
