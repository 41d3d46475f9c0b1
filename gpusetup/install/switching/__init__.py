"""Changes an environment so that it always ends in either the old or the new state, even if
gpusetup is killed."""
