"""Installs the chosen build into an environment: the plan, the download, the switch, the
receipt."""
