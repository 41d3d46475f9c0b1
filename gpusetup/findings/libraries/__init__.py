"""The libraries under torch, and the extensions on top of it."""
