"""The rows about several devices and about time: distributed and stress."""

from __future__ import annotations

from typing import Tuple

from .values import Check

DISTRIBUTED: Tuple[Check, ...] = ()
STRESS: Tuple[Check, ...] = ()
