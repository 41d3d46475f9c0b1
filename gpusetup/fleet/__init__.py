"""Many machines: how they differ, and which one differs from the others."""
