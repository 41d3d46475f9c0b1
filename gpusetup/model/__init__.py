"""The plain values that are passed between the steps, their file formats, and command lines to
type."""
