"""Somebody's text becomes the same snapshot that a live machine gives: pure, no rule in here."""
