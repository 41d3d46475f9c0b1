"""Tests one job with several processes: each one's rank, how they meet, and what they compute."""
