"""The only package that accesses the machine: files, child processes, environment variables."""
