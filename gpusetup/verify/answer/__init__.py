"""The report as text, JSON, JUnit and annotations."""
