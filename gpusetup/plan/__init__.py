"""Whether a training workload fits on GPUs, with which recipe, and by what margin. Pure."""
