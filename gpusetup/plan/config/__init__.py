"""A training config as a question: which keys were read, what was assumed, what nobody knows."""
