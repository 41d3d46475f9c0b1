"""The receipt of an installation, kept in the environment: the packages before and after, and their
sources."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpusetup import __version__
from gpusetup.install.job import InstallJob, Plan
from gpusetup.install.switching.files import write_safely
from gpusetup.model.codec import to_plain


def write_receipt(
    path: Path, plan: Plan, job: InstallJob, verdict: Mapping[str, Any] | None
) -> None:
    """Write the receipt of an installation, without logins, user names and home folders.

    The host of each file stays, because a reader of the receipt wants to know where a package came
    from.
    """
    from gpusetup.redaction import redact_document

    wheels: list[dict[str, Any]] = []
    for wheel in plan.wheels:
        row = {"name": wheel.name, "version": wheel.version}
        wheels.append({**row, "url": wheel.url, "sha256": wheel.sha256})
    receipt = {
        "schema": "gpusetup.receipt/1",
        "gpusetup": __version__,
        "installed_at": now(),
        "python": plan.python,
        "backend": plan.backend,
        "installer": "uv",
        "before": {**plan.before},
        "after": {**plan.after},
        "wheels": wheels,
        "steps": list(map(to_plain, job.done)),
        "verdict": {"verdict": verdict["verdict"]} if verdict else None,
    }
    redacted = redact_document(receipt)
    # These facts are added after the redaction, which would hide a private index.
    for row, wheel in zip(redacted["wheels"], plan.wheels, strict=True):
        row["file"] = wheel.filename
        row["host"] = wheel.host or None
    redacted["hosts"] = list(plan.hosts)
    write_safely(path, json.dumps(redacted, indent=2) + "\n")


def now() -> str:
    """The present time in UTC, as ISO 8601."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
