"""The commands and sentences of fixes, exact for one machine and its shell."""
