"""What the user's own code takes, by tracing one step of it."""
