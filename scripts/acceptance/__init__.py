"""Tests of the whole program on a real GPU, whose results are kept as evidence (`conftest.py`)."""
