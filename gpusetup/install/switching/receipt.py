"""What an installation leaves in the target: what was there, what is there, and from where."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from gpusetup import __version__
from gpusetup.install.plan import Plan
from gpusetup.install.switching.files import write_safely
from gpusetup.model.documents import DoneStep


def write_receipt(
    path: Path, plan: Plan, done: Iterable[DoneStep], verdict: Mapping[str, Any] | None
) -> None:
    """Written without credentials, servers, users and home folders, so that it may be shared."""
    from gpusetup.redaction import redact_document

    wheels = [
        {
            "name": one.name,
            "version": one.version,
            "url": one.url,
            "sha256": one.sha256,
        }
        for one in plan.wheels
    ]
    steps = [{"argv": [*one.argv], "seconds": one.seconds, "exit": one.exit} for one in done]
    receipt = {
        "schema": "gpusetup.receipt/1",
        "gpusetup": __version__,
        "installed_at": now(),
        "python": plan.python,
        "backend": plan.choice.backend,
        "installer": "uv",
        "before": {**plan.before},
        "after": {**plan.after},
        "wheels": wheels,
        "steps": steps,
        "verdict": verdict and {"verdict": verdict["verdict"]},
    }
    write_safely(path, json.dumps(redact_document(receipt), indent=2) + "\n")


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
