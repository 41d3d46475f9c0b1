"""The checks of a device, and the table of levels."""
