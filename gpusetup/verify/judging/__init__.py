"""How exact a result must be: tolerances, precisions, and the user's expectations (`--expect`)."""
