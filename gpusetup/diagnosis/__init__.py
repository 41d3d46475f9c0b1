"""All findings about one machine become one root cause, and the build that fits."""
