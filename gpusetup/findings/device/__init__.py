"""The GPUs as devices: access, health, links, speed."""
