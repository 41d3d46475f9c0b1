"""The rows of the standard level, in running order."""

from __future__ import annotations

from typing import Tuple

from .values import Check

STANDARD: Tuple[Check, ...] = ()
