"""The records of causes: one record for each cause."""
