"""What programs say, as rows that both the reader of reports and the reader of this machine use."""
