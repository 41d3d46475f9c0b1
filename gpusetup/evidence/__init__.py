"""The input of a rule, and how a rule quotes its sources."""
