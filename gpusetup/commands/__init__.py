"""One file per command: gather, decide, render, exit code."""
