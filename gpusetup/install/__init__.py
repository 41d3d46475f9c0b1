"""Carries out a choice in an environment: plan, download, switch, receipt."""
