"""The commands and texts of fixes, written for one machine and its shell."""
