"""One record a cause."""
