"""One module per command. Each reads the facts, decides, renders the result and sets the exit
code."""
