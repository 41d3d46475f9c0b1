"""Rules: pure functions from a machine's record to findings about it, one file per family.

`judge.diagnose` runs them all; `precedence` says which finding is the root; `knowledge` documents
every id.
"""
