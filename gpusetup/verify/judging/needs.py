"""What a check needs of those before it, and what is said where it did not get it."""

from __future__ import annotations

from typing import Optional, Sequence, Tuple

from ..values import HOST, PASSED, SKIPPED, Outcome, Result


def blocking(
    needs: Tuple[str, ...], device: Optional[str], results: Sequence[Result]
) -> Optional[Result]:
    """The earlier result without which a check says nothing (device None: on any device)."""
    for result in results:
        near = device is None or result.device in (device, HOST)
        if near and result.name in needs and result.outcome.status != PASSED:
            return result
    return None


def skip(because: Result) -> Outcome:
    """The outcome of a check that was not run."""
    if because.outcome.status == SKIPPED:
        return Outcome(SKIPPED, because.outcome.detail)
    return Outcome(SKIPPED, f"needs {because.name}, which {because.outcome.status}")
