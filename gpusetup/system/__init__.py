"""The only access to the machine: files, child processes, environment variables."""
