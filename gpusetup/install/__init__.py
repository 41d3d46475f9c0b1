"""Installs the chosen build into an environment: plans, downloads, switches the files, and writes a
receipt."""
