"""`doctor --deep`: what the quick level of verify cannot do in the target's interpreter."""

from __future__ import annotations

import sys
from pathlib import Path

from gpusetup.causes.torch_builds import GPU_CHECK_FAILED
from gpusetup.model.machine import Event, Snapshot
from gpusetup.render.console import Console

VERIFY_SECONDS = 300.0


def verified(snapshot: Snapshot, out: Console) -> tuple[Event, ...]:
    """What the quick level of verify, run by the target's interpreter, could not do, as events."""
    python = snapshot.python.executable
    silent = any(event.kind == "child-failed" for event in snapshot.events)
    if silent or not python or not snapshot.torch.installed or not snapshot.gpus:
        return ()
    out.talk("verifying torch in the target")
    from gpusetup.system.processes import run as start
    from gpusetup.system.system import HOLD_BACK

    folder = Path(__file__).resolve().parent.parent / "verify"
    held = (sys.executable, "-I", "-S", HOLD_BACK)
    argv = (*held, python, str(folder), "--level", "quick", "--json")
    said = start(argv, timeout=VERIFY_SECONDS)
    return failed_checks(said.stdout) or _died(said.exit, said.problem)


def failed_checks(text: str) -> tuple[Event, ...]:
    """The failed and crashed checks of a verify document.

    >>> failed_checks('{"checks": [{"name": "matmul", "status": "failed"}]}')[0].kind
    'gpu-check-failed'
    """
    import json

    try:
        checks = json.loads(text).get("checks", ())
    except (ValueError, AttributeError):
        return ()
    bad = [check for check in checks if check.get("status") in ("failed", "crashed")]
    return tuple(
        Event(
            kind=GPU_CHECK_FAILED.id,
            values={key: str(check.get(key, "")) for key in ("name", "device", "status")},
            source="verify",
            text=f"{check.get('name')} on {check.get('device')}: {check.get('detail')}",
        )
        for check in bad
    )


def _died(code: int | None, problem: str | None) -> tuple[Event, ...]:
    """verify itself ended without a document."""
    if code in (0, 1) and not problem:
        return ()
    values = {"name": "verify", "device": "", "status": "crashed"}
    return (
        Event(
            kind=GPU_CHECK_FAILED.id, values=values, source="verify", text=problem or f"exit {code}"
        ),
    )
