"""What the way into a thread added to a text, and what in it is no message, taken away."""
