"""Ways out: the commands of a fix, exact for one machine and its shell."""
