"""The rules that make findings: each one takes what is known about a machine and returns what is
wrong with it."""
