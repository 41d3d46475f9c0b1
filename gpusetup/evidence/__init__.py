"""What a rule is given, and how it quotes what it saw."""
