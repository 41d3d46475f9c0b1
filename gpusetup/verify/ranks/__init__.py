"""Tests one job with several processes: the rank of each process, how the processes meet, and what
they compute."""
