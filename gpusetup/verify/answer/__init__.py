"""Renders the report as text, JSON and JUnit XML."""
