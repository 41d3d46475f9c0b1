"""What an installation leaves in the target: what was there, what is there, and from where."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpusetup import __version__
from gpusetup.install.job import Job
from gpusetup.install.plan import Plan
from gpusetup.install.switching.files import write_safely
from gpusetup.model.codec import to_plain


def write_receipt(path: Path, plan: Plan, job: Job, verdict: Mapping[str, Any] | None) -> None:
    """Write what was installed, without logins, users and home folders.

    The host of each file stays: whoever reads the receipt wants to know where a package came from.
    """
    from gpusetup.redaction import redact_document

    shown = ("name", "version", "url", "sha256")
    wheels = [{name: getattr(one, name) for name in shown} for one in plan.wheels]
    # Redaction would hide a private index, so that these facts join the receipt after it.
    places = [{"file": one.filename, "host": one.host or None} for one in plan.wheels]
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
        "steps": list(map(to_plain, job.done)),
        "verdict": verdict and {"verdict": verdict["verdict"]},
    }
    redacted = redact_document(receipt)
    for row, place in zip(redacted["wheels"], places, strict=True):
        row |= place
    # A file may be kept in uv's cache; then nobody was asked for it.
    redacted["hosts"] = list(job.contacted)
    write_safely(path, json.dumps(redacted, indent=2) + "\n")


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
