"""Changes an environment so that it always ends in the old state or the new one."""
