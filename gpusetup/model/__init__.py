"""The plain values that are passed between steps, their file formats, and command lines for people
to type."""
