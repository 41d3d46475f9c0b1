"""Findings: one folder a family, each a pure rule over a machine beside what is known of it."""
