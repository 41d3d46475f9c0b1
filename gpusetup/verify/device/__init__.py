"""What this torch and its devices are: read, not judged by computing."""
