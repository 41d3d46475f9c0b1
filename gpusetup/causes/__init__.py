"""One record for each cause that doctor knows."""
