"""`doctor --deep`: what the quick level of verify cannot do in the target's interpreter."""

from __future__ import annotations

import sys
from pathlib import Path

from gpusetup.errors import GpuSetupError
from gpusetup.model.machine import Event, Snapshot
from gpusetup.render.console import Console

VERIFY_SECONDS = 300.0


def verified(snapshot: Snapshot, out: Console) -> tuple[Event, ...]:
    """What the quick level of verify, run by the target's interpreter, could not do, as events."""
    from gpusetup.commands.verify import document_of
    from gpusetup.system.processes import run as start
    from gpusetup.system.system import HOLD_BACK

    python = snapshot.python.executable
    silent = any(event.kind == "child-failed" for event in snapshot.events)
    if silent or not python or not snapshot.torch.installed or not snapshot.gpus:
        return ()
    out.talk("verifying torch in the target")
    folder = Path(__file__).resolve().parent.parent / "verify"
    held = (sys.executable, "-I", "-S", HOLD_BACK)
    argv = (*held, python, str(folder), "--level", "quick", "--json")
    said = start(argv, timeout=VERIFY_SECONDS)
    try:
        checks = document_of(said).checks
    except GpuSetupError as problem:
        return (_event("verify", "", "crashed", said.problem or problem.message),)
    return tuple(
        _event(check.name, check.device, check.status, f"on {check.device}: {check.detail}")
        for check in checks
        if check.status in ("failed", "crashed")
    )


def _event(name: str, device: str, status: str, said: str) -> Event:
    values = {"name": name, "device": device, "status": status}
    return Event(kind="gpu-check-failed", values=values, source="verify", text=f"{name} {said}")
