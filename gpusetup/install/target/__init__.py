"""The environment that is changed: its folders, who uses it, and its free disk space."""
