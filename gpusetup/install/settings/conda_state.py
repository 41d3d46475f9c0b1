"""conda's `conda-meta/state`: the variables that conda, mamba and micromamba set when they activate
an environment, in whichever shell (`conda env config vars list`)."""

from __future__ import annotations

import json
from typing import Any

VARIABLE = "UV_CONSTRAINT"


def with_variable(before: bytes | None, named: str) -> bytes | None:
    """The file that also sets `UV_CONSTRAINT`; what it was set to stays beside ours. None where it
    is not as conda writes it.

    >>> with_variable(None, "/o.txt")
    b'{"version": 1, "env_vars": {"UV_CONSTRAINT": "/o.txt"}}'
    """
    try:
        state: Any = {"version": 1} if before is None else json.loads(before)
        rows = state.setdefault("env_vars", {})
        former = rows.get(VARIABLE, "")
        if named in former.split():
            return before
        rows[VARIABLE] = f"{named} {former}".strip()
    except (ValueError, AttributeError, TypeError, RecursionError):
        return None
    return json.dumps(state).encode()
