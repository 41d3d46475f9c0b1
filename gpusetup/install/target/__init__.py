"""The environment that is changed: its layout, who uses it, the room that it has."""
