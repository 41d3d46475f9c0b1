"""How right is right: tolerances, precisions, expectations."""
