"""The plain values that steps pass to each other, their file formats, and command lines for users
to type."""
