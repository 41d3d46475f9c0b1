"""The environment that is changed: its layout, who uses it, and its free space."""
