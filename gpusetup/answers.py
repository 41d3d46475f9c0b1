"""What each command answers under `--json`: the public documents, as types.

`gpusetup schema COMMAND` prints the JSON schemas made from these by `scripts/write_reference.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from gpusetup.model import (
    Advice,
    Choice,
    Finding,
    Rejection,
    Resolution,
    Served,
    Snapshot,
)
from gpusetup.value import Value


class ErrorAnswer(Value):
    schema: Literal["gpusetup.error/1"] = "gpusetup.error/1"
    message: str
    hint: str | None = None
    exit: int


class ResolveAnswer(Value):
    """Also the `resolution` of doctor. `torch` is null when nothing fits."""

    schema: Literal["gpusetup.resolve/1"] = "gpusetup.resolve/1"
    torch: str | None
    torchvision: str | None = None
    torchaudio: str | None = None
    backend: str | None = None
    index_url: str | None = None
    python: str | None = None
    driver_floor: str | None = None
    served: tuple[Served, ...] = ()
    fallbacks: tuple[Choice, ...] = ()
    rejections: tuple[Rejection, ...] = ()
    advice: Advice | None = None
    commands: Mapping[str, tuple[tuple[str, ...], ...]] = {}
    notes: tuple[str, ...] = ()
    catalog_as_of: str = ""


class DoctorAnswer(Value):
    schema: Literal["gpusetup.doctor/1"] = "gpusetup.doctor/1"
    cause: str
    """The id of the root cause, or `ok`, or `unknown`."""
    findings: tuple[Finding, ...]
    resolution: ResolveAnswer | None
    snapshot: Snapshot
    catalog_as_of: str


class DoneStep(Value):
    argv: tuple[str, ...]
    seconds: float | None = None
    exit: int | None = None


class InstallAnswer(Value):
    schema: Literal["gpusetup.install/1"] = "gpusetup.install/1"
    state: Literal["installed", "unchanged", "restored", "planned"]
    target: str
    before: Mapping[str, str]
    after: Mapping[str, str]
    steps: tuple[DoneStep, ...]
    verdict: Mapping[str, Any] | None = None
    """The verify document of the target."""
    receipt: str | None = None
    log: str | None = None
    diff: str | None = None
    """With `--project`: the change of the project file."""


class CheckAnswer(Value):
    """One check of verify. The folder `verify/` stands alone, so this mirrors what it prints."""

    name: str
    device: str
    status: Literal["passed", "failed", "skipped", "crashed"]
    detail: str = ""
    value: float | None = None
    limit: float | None = None
    unit: str | None = None
    seconds: float | None = None
    hint: str | None = None
    """The one next step, where the check did not pass."""
    means: str | None = None
    """What a failure means for somebody who uses the device."""
    spread: float | None = None
    """Of a rate: by which part of the value repeated measurements differed."""


class VerifyAnswer(Value):
    schema: Literal["gpusetup.verify/1"] = "gpusetup.verify/1"
    verdict: Literal["passed", "failed"]
    torch: str | None
    cuda: str | None
    python: str
    devices: tuple[Mapping[str, Any], ...]
    checks: tuple[CheckAnswer, ...]


ANSWERS: dict[str, type] = {
    "doctor": DoctorAnswer,
    "error": ErrorAnswer,
    "install": InstallAnswer,
    "resolve": ResolveAnswer,
    "snapshot": Snapshot,
    "verify": VerifyAnswer,
}
"""Command -> the type of its answer."""

__all__ = [
    "ANSWERS",
    "DoctorAnswer",
    "ErrorAnswer",
    "InstallAnswer",
    "Resolution",
    "ResolveAnswer",
    "VerifyAnswer",
]
