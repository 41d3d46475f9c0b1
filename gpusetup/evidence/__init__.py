"""The input of a diagnosis rule, and how a rule quotes its sources."""
