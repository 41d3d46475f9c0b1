"""The environment to change: its folders, the packages in it, and notes about it."""
