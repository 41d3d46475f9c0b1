"""Changes an environment so that it is always in the old or the new state, whatever happens."""
