"""A simulator of machines on which printed commands are typed, for the closing test."""
