"""A person's training config: its text with the positions of its values, and what its keys mean."""
