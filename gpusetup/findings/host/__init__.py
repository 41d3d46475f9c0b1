"""The host: memory, disks, settings."""
