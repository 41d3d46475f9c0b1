"""The one door to the machine: files, children, environment."""
