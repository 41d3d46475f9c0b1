"""How long a server is waited for."""

from __future__ import annotations

CONNECT_SECONDS = 5.0
SILENCE_SECONDS = 6.0
"""How long a server may say nothing."""
LIMITS = (CONNECT_SECONDS, SILENCE_SECONDS)
"""As `requests` takes them."""
