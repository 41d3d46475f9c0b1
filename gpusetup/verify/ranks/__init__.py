"""Tests a job of several processes: how they meet, and what they compute together."""
