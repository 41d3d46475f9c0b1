"""One file for each command: it gathers facts, decides, renders the result and sets the exit
code."""
