"""Many machines: what differs between them, and which one is not like the others."""
