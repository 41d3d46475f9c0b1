"""Jetson boards."""
