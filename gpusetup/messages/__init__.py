"""What programs say, as rows: for whoever reads a report, and whoever reads this machine."""
