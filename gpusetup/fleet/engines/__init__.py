"""What gpusetup says and does under a scheduler: one file for each."""
