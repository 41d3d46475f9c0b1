"""One module per command: it reads the facts, decides, renders the result and sets the exit
code."""
